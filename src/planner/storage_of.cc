// SPDX-License-Identifier: Apache-2.0
#include "planner/storage_of.h"

namespace thimble::planner {
namespace {

// A weight is as sparse in any type.
Storage Sparse(Storage storage, const ValueSpec& spec) {
  storage.sparsity = spec.storage.sparsity;
  return storage;
}

}  // namespace

Storage StorageOf(const ValueSpec& spec, Role role,
                  const Precision& precision) {
  const DType now = spec.storage.dtype;
  if (now != DType::kF32 && now != DType::kF16 && now != DType::kBF16) {
    return spec.storage;
  }
  if (spec.shape.rank() < 2) return DType::kF32;
  switch (role) {
    case Role::kParameter:
      return Sparse(precision.parameters, spec);
    case Role::kGradient:
      return Sparse(precision.gradients, spec);
    case Role::kActivation:
    case Role::kActivationGradient:
      // A weight's gradient may be called so at first.
      return Sparse(spec.axis.valid() ? precision.activations : DType::kF32,
                    spec);
    default:
      return DType::kF32;
  }
}

}  // namespace thimble::planner
