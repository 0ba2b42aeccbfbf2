// SPDX-License-Identifier: Apache-2.0
//
// The one product that the linear map and its two gradients are: C = A B, with
// A read through two strides and B either as it lies or transposed. Internal to
// the family.
#pragma once

#include <cstddef>

namespace thimble::kernels::matmul {

struct Product {
  const float* a = nullptr;  // A[m, k] = a[m * a_row + k * a_depth]
  size_t a_row = 0;
  size_t a_depth = 0;
  const float* b = nullptr;  // B[k, n] = b[k * b_stride + n], or
  size_t b_stride = 0;       // b[n * b_stride + k] where transposed
  bool b_transposed = false;
  float* c = nullptr;  // C[m, n] = c[m * cols + n]
  // Like c, and may be c: what the sums are added to. Null: zeros.
  const float* addend = nullptr;
  size_t rows = 0;   // M
  size_t cols = 0;   // N
  size_t depth = 0;  // K
};

// B is packed in panels of kPanelVectors vectors and at most kPanelDepth rows,
// which is all the scratch a thread needs: 32 KiB with 16 lanes.
inline constexpr size_t kPanelVectors = 2;
inline constexpr size_t kPanelDepth = 256;
inline constexpr size_t kMostLanes = 16;

// A block of C is kBlockColumns wide: its panels of one depth are packed again
// for each kBlockRows rows, from lines of B that the last-level cache holds, so
// that these rows of A stay in the second-level cache (240 KiB) for all of
// them. Whole register tiles of any target.
inline constexpr size_t kBlockRows = 240;
inline constexpr size_t kBlockColumns = 1024;

}  // namespace thimble::kernels::matmul
