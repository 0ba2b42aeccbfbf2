// SPDX-License-Identifier: Apache-2.0
#include "ops/storage.h"

#include <fmt/format.h>

#include <string>

#include "base/check.h"

namespace thimble::ops {

namespace {

Status Refuse(std::string_view what, const std::string& wanted,
              const ValueSpec& spec, std::string_view advice) {
  return Status::Usage(fmt::format("needs {} stored as {}, got {} {}{}", what,
                                   wanted, spec.storage.ToString(),
                                   spec.shape.ToString(), advice));
}

// normalize is what makes numbers of bytes.
std::string_view AdviceFor(const ValueSpec& spec) {
  return spec.storage == DType::kU8 ? "; normalize images first" : "";
}

}  // namespace

Status CheckStored(std::string_view what, const ValueSpec& spec,
                   const Storage& storage) {
  if (spec.storage == storage) return Status::Ok();
  return Refuse(what, storage.ToString(), spec,
                storage == DType::kF32 ? AdviceFor(spec) : "");
}

Status CheckStoredAsOneOf(std::string_view what, const ValueSpec& spec,
                          std::span<const Storage> storages) {
  std::string names;
  for (const Storage& storage : storages) {
    if (spec.storage == storage) return Status::Ok();
    const bool is_last = &storage == &storages.back();
    names += names.empty() ? "" : is_last ? " or " : ", ";
    names += storage.ToString();
  }
  return Refuse(what, names, spec, "");
}

Status CheckFloat(std::string_view what, const ValueSpec& spec) {
  if (spec.storage == DType::kF32 || spec.storage == DType::kF16 ||
      spec.storage == DType::kBF16) {
    return Status::Ok();
  }
  return Refuse(what, "f32, f16 or bf16", spec, AdviceFor(spec));
}

Status CheckGradient(std::string_view what, const ValueSpec& spec) {
  return spec.storage == U8InBlocks() ? Status::Ok() : CheckFloat(what, spec);
}

Status CheckFloats(std::span<const ValueSpec> inputs,
                   std::initializer_list<FloatInput> names) {
  TH_CHECK(inputs.size() <= names.size());
  const FloatInput* input = names.begin();
  for (ValueSpec spec : inputs) {
    if (input->kind == FloatInput::Kind::kWeight) spec.storage.sparsity.reset();
    TH_RETURN_IF_ERROR(input->kind == FloatInput::Kind::kVector
                           ? CheckStored(input->name, spec, DType::kF32)
                           : CheckFloat(input->name, spec));
    ++input;
  }
  return Status::Ok();
}

}  // namespace thimble::ops
