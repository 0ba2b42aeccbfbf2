// SPDX-License-Identifier: Apache-2.0
//
// How many rows a dynamic convolution takes at a time, which its scratch
// follows from. Constants.
#pragma once

#include <cstdint>

namespace thimble::kernels {

// Rows whose taps are made together: few enough to stay in the first cache.
inline constexpr int64_t kConvBlock = 16;
// Of the input's gradient, where the taps of all rows that reach a block are
// made for it.
inline constexpr int64_t kGradInputBlock = 64;
// Rows of which the products with the rows that they reach are made at a time:
// for odd kernels, two rows reach a multiple of two rows.
inline constexpr int64_t kGradRows = 2;

}  // namespace thimble::kernels
