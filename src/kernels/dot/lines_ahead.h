// SPDX-License-Identifier: Apache-2.0
//
// Memory that will be read next, asked for a line at a time while sums are
// computed: between loops, all of it would be more at once than a CPU can wait
// for. One thread's. Internal to convolutions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace thimble::kernels::dot {

struct LinesAhead {
  static constexpr int64_t kLine = 32;  // elements of 16 bits

  LinesAhead() = default;
  LinesAhead(const uint16_t* data, int64_t count)
      : at(data), left((count + kLine - 1) / kLine) {}

  // Into the second-level cache: the first one is full.
  void Fetch() {
    if (left == 0) return;
    __builtin_prefetch(at, 0, 2);
    --left;
    at += kLine;
  }

  const uint16_t* at = nullptr;
  int64_t left = 0;  // lines
};

}  // namespace thimble::kernels::dot
