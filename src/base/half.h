// SPDX-License-Identifier: Apache-2.0
//
// One number between f32 and the storage types of 16 bits, for code that is not
// hot: initial values, checks. Rounds to nearest even; kernels convert whole
// vectors to the same bits, but for what a NaN carries (kernels/convert-inl.h).
// Pure functions.
#pragma once

#include <cstdint>

namespace thimble {

uint16_t F16Of(float x);
uint16_t BF16Of(float x);
float F16Value(uint16_t bits);
float BF16Value(uint16_t bits);

}  // namespace thimble
