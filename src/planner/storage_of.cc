// SPDX-License-Identifier: Apache-2.0
#include "planner/storage_of.h"

namespace thimble::planner {

Storage StorageOf(const ValueSpec& spec, Role role,
                  const Precision& precision) {
  const DType now = spec.storage.dtype;
  if (now != DType::kF32 && now != DType::kF16 && now != DType::kBF16) {
    return spec.storage;
  }
  if (spec.shape.rank() < 2) return DType::kF32;
  switch (role) {
    case Role::kParameter:
      return precision.parameters;
    case Role::kGradient:
      return precision.gradients;
    case Role::kActivation:
    case Role::kActivationGradient:
      return spec.axis.valid() ? precision.activations : DType::kF32;
    default:
      return DType::kF32;
  }
}

}  // namespace thimble::planner
