// SPDX-License-Identifier: Apache-2.0
//
// Wide residual networks wrn-D-K with identity shortcuts: D = 6n+4 layers, n
// pre-activation blocks in each of three stages of 16K, 32K and 64K channels.
//
//   a = relu(bn1(x));  y = conv1(a);  b = relu(bn2(y));  z = conv2(b)
//   out = shortcut(x) + z
//
// A dropout stands behind b's ReLU, where Zagoruyko and Komodakis have it.
//
// Where the shape changes, the shortcut takes every second row and column of
// the raw x and appends channels of zeros: it has no parameters.
//
// Parameter names: stem.weight;
// stage{1..3}.block{1..n}.{bn1,conv1,bn2,conv2}.*; bn.*; fc.*.
#pragma once

#include <optional>
#include <string>

#include "thimble/model.h"

namespace thimble::models {

struct WrnShape {
  int64_t depth = 28;
  double width = 2;  // K, may be fractional
};

// Reads "wrn-28-2" or "wrn-16-0.75"; nothing for names of other models, an
// error that states the limits for a depth or width outside of them.
Result<std::optional<WrnShape>> ParseWrnName(const std::string& name);

Result<Model> BuildWrn(const std::string& name, const WrnShape& shape,
                       const ModelOptions& options);

// The rates of the paper's Table 6 as multiples of 0.1: dense networks run at
// half of it, except the narrowest (K = 0.5).
TrainingPreset WrnPreset(const WrnShape& shape);

}  // namespace thimble::models
