// SPDX-License-Identifier: Apache-2.0
#include "thimble/precision.h"

#include <fmt/format.h>

namespace thimble {
namespace {

bool IsFloatType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace

Status Precision::Check() const {
  for (const DType dtype : {parameters, gradients, activations}) {
    if (IsFloatType(dtype)) continue;
    return Status::Usage(
        fmt::format("Precision takes f32, f16 or bf16 for each role, got {}",
                    DTypeName(dtype)));
  }
  return Status::Ok();
}

std::string Precision::ToString() const {
  if (parameters == gradients && parameters == activations) {
    return DTypeName(parameters);
  }
  return fmt::format("parameters {}, gradients {}, activations {}",
                     DTypeName(parameters), DTypeName(gradients),
                     DTypeName(activations));
}

Result<DType> ParseFloatType(std::string_view name) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (name == DTypeName(dtype)) return dtype;
  }
  return Status::Usage(
      fmt::format("'{}' is no storage type; f32, f16 and bf16 are", name));
}

}  // namespace thimble
