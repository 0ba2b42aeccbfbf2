// SPDX-License-Identifier: Apache-2.0
//
// Precision: how a plan stores what training works on, by role. Arithmetic is
// f32 whatever the storage; a value is rounded once, where it is written. What
// has one element per channel or feature (biases, batch norms' parameters and
// statistics, their gradients and optimizer state) and the loss are f32 always.
// Plain values.
#pragma once

#include <string>
#include <string_view>

#include "thimble/dtype.h"
#include "thimble/status.h"
#include "thimble/storage.h"

namespace thimble {

struct Precision {
  // Each f32, f16 or bf16.
  DType parameters = DType::kF32;
  // Of parameters. Also U8InBlocks(), which is rounded stochastically.
  Storage gradients = DType::kF32;
  DType activations = DType::kF32;  // and their gradients
  // false: gradients of weights are not stored at all. Each is added to the
  // optimizer's state as it is made, which not every optimizer can do
  // (Optimizer::CheckFold).
  bool keeps_gradients = true;

  static Precision All(DType dtype) {
    return {.parameters = dtype, .gradients = dtype, .activations = dtype};
  }

  bool is_f32() const { return *this == Precision(); }
  // An error that says what to change where one is no such type.
  Status Check() const;
  // "f16"; where they differ "parameters f16, gradients f32, activations f16"
  std::string ToString() const;

  friend bool operator==(const Precision&, const Precision&) = default;
};

// f32, f16 or bf16 by name.
Result<DType> ParseFloatType(std::string_view name);

}  // namespace thimble
