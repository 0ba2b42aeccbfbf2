// SPDX-License-Identifier: Apache-2.0
//
// Rounding: what becomes of the bits of an updated value that its storage has
// no room for. Values of f32 have room for all. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "thimble/status.h"

namespace thimble {

enum class Rounding : uint8_t {
  // To the nearest value, ties to even. A step below half of the distance
  // between neighbours is lost.
  kNearest,
  // Up or down by chance, so that the mean over many steps is exact. Drawn anew
  // from seed, step, parameter and element: a run can be repeated.
  kStochastic,
  // To nearest, and what was lost is handed on to SGD's velocity, whose next
  // steps make up for it.
  kFeedback,
};

const char* RoundingName(Rounding rounding);  // "nearest"
// nearest, stochastic or feedback.
Result<Rounding> ParseRounding(std::string_view name);

}  // namespace thimble
