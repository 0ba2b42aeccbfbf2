// SPDX-License-Identifier: Apache-2.0
//
// Shape inference's question about storage types: whether an input is stored as
// the op's kernel reads it. Pure functions.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include "thimble/graph.h"
#include "thimble/status.h"
#include "thimble/storage.h"

namespace thimble::ops {

// An error that names both where `spec` is not stored as `storage`. `what` is
// the input's name: "x", "grad_y".
Status CheckStored(std::string_view what, const ValueSpec& spec,
                   const Storage& storage);

// The same where several storages are taken.
Status CheckStoredAsOneOf(std::string_view what, const ValueSpec& spec,
                          std::span<const Storage> storages);
// What a sparse weight keeps as one; none where it is dense.
inline std::optional<WeightBlock> BlocksOf(const Storage& storage) {
  if (!storage.sparsity.has_value()) return std::nullopt;
  return storage.sparsity->block;
}

// An error unless `spec` is stored as f32, f16 or bf16.
Status CheckFloat(std::string_view what, const ValueSpec& spec);

// The same for a parameter's gradient, which may be in blocks of bytes too.
Status CheckGradient(std::string_view what, const ValueSpec& spec);

// An input by its name: stored as any float type; a weight may be sparse, too;
// a vector with one element per channel or feature is f32.
struct FloatInput {
  enum class Kind : uint8_t { kTensor, kWeight, kVector };
  FloatInput(const char* n, Kind k = Kind::kTensor)  // NOLINT: implicit
      : name(n), kind(k) {}
  std::string_view name;
  Kind kind;
};
inline FloatInput Vector(const char* name) {
  return {name, FloatInput::Kind::kVector};
}
inline FloatInput Weight(const char* name) {
  return {name, FloatInput::Kind::kWeight};
}

// That all inputs are stored so; the first that is not is the error. `names`
// are in the order of the inputs; the op may lack the last ones.
Status CheckFloats(std::span<const ValueSpec> inputs,
                   std::initializer_list<FloatInput> names);

}  // namespace thimble::ops
