// SPDX-License-Identifier: Apache-2.0
#include "ops/storage.h"

#include <fmt/format.h>

#include <string>

#include "base/check.h"

namespace thimble::ops {

Status CheckStored(std::string_view what, const ValueSpec& spec,
                   const Storage& storage) {
  if (spec.storage == storage) return Status::Ok();
  // normalize is what makes f32 of bytes.
  const bool images = spec.storage == DType::kU8 && storage == DType::kF32;
  return Status::Usage(fmt::format("needs {} stored as {}, got {} {}{}", what,
                                   storage.ToString(), spec.storage.ToString(),
                                   spec.shape.ToString(),
                                   images ? "; normalize images first" : ""));
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
  return Status::Usage(fmt::format("needs {} stored as {}, got {} {}", what,
                                   names, spec.storage.ToString(),
                                   spec.shape.ToString()));
}

Status CheckF32(std::span<const ValueSpec> inputs,
                std::initializer_list<std::string_view> names) {
  TH_CHECK(inputs.size() <= names.size());
  const std::string_view* name = names.begin();
  for (const ValueSpec& input : inputs) {
    TH_RETURN_IF_ERROR(CheckStored(*name++, input, DType::kF32));
  }
  return Status::Ok();
}

}  // namespace thimble::ops
