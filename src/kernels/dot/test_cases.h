// SPDX-License-Identifier: Apache-2.0
//
// Test only: shapes with which direct convolutions by dot products are tested.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/conv/test_fused.h"

namespace thimble::kernels::testing {

// No shape that Winograd's products would take. Odd channels, outputs, rows and
// columns, both strides, kernels that do not fit the stride, more padding than
// the kernel needs, images that share a tile, tiles of a few rows, several
// chunks of sums, rows of 16 and of 32 pixels that stride 2 halves.
inline const FusedCase kDirectCases[] = {
    {{3, 3, 3, 2, 1, 1, 1, 0}, 2},   {{5, 8, 8, 6, 3, 3, 1, 1}, 3},
    {{9, 16, 16, 8, 1, 1, 2, 0}, 2}, {{3, 7, 9, 5, 3, 3, 1, 1}, 2},
    {{4, 9, 7, 3, 5, 5, 2, 2}, 2},   {{10, 5, 5, 7, 3, 3, 2, 1}, 5},
    {{10, 6, 6, 9, 2, 2, 2, 0}, 2},  {{13, 4, 4, 10, 3, 3, 2, 1}, 9},
    {{11, 5, 5, 12, 1, 1, 1, 1}, 2},
};
inline const FusedCase kLargeDirectCases[] = {
    {{4, 16, 16, 9, 3, 3, 2, 1}, 3},   {{9, 8, 8, 12, 1, 1, 1, 0}, 3},
    {{6, 32, 32, 8, 3, 3, 2, 1}, 2},   {{8, 12, 11, 7, 7, 5, 2, 3}, 2},
    {{7, 8, 8, 9, 1, 3, 1, 1}, 18},    {{66, 16, 18, 9, 3, 3, 1, 1}, 1},
    {{34, 20, 36, 10, 3, 3, 2, 1}, 1}, {{3, 20, 150, 5, 5, 5, 2, 2}, 1},
    {{5, 11, 16, 4, 3, 3, 2, 1}, 3},   {{6, 9, 32, 5, 5, 6, 2, 2}, 2},
    {{5, 6, 16, 6, 3, 3, 2, 1}, 3},    {{64, 16, 16, 128, 3, 3, 2, 1}, 3},
};

// Of residual nets for small and for large images.
inline const Conv2dShape kModelShapes[] = {
    {16, 32, 32, 32, 3, 3, 1, 1},     {32, 32, 32, 64, 3, 3, 2, 1},
    {64, 16, 16, 128, 3, 3, 2, 1},    {16, 32, 32, 32, 1, 1, 1, 0},
    {64, 16, 16, 128, 1, 1, 2, 0},    {640, 8, 8, 640, 3, 3, 1, 1},
    {512, 7, 7, 512, 3, 3, 1, 1},     {2048, 7, 7, 512, 1, 1, 1, 0},
    {1024, 14, 14, 2048, 1, 1, 2, 0}, {256, 56, 56, 512, 1, 1, 2, 0},
    {64, 56, 56, 64, 3, 3, 1, 1},     {128, 56, 56, 128, 3, 3, 2, 1}};

inline void ExpectBytes(const std::vector<uint8_t>& got,
                        const std::vector<uint8_t>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i], want[i]) << "byte " << i << " of " << got.size();
  }
}

}  // namespace thimble::kernels::testing
