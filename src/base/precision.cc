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
  const auto refuse = [](const Storage& storage) {
    return Status::Usage(fmt::format(
        "Precision takes f32, f16 or bf16 for each role, and bytes in blocks "
        "of 64 for gradients, got {}",
        storage.ToString()));
  };
  for (const DType dtype : {parameters, activations}) {
    if (!IsFloatType(dtype)) return refuse(dtype);
  }
  const bool is_plain = gradients == Storage(gradients.dtype);
  if (gradients == U8InBlocks() || (is_plain && IsFloatType(gradients.dtype))) {
    return Status::Ok();
  }
  return refuse(gradients);
}

std::string Precision::ToString() const {
  if (keeps_gradients && gradients == parameters && parameters == activations) {
    return DTypeName(parameters);
  }
  return fmt::format("parameters {}, gradients {}, activations {}",
                     DTypeName(parameters),
                     keeps_gradients ? DTypeName(gradients.dtype) : "none",
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
