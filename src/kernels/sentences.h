// SPDX-License-Identifier: Apache-2.0
//
// Where the sentences of a text lie: its rows, one per token, are packed
// without padding. Example: with ends {3, 3, 7}, sentence 0 is rows 0 to 2,
// sentence 1 is empty, and sentence 2 is rows 3 to 6. A view of ends that
// somebody else owns; safe from every thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace thimble::kernels {

struct Sentences {
  int64_t count = 0;
  // Of each sentence, the row behind its last one; they never descend.
  const int32_t* ends = nullptr;

  // Rows of all sentences.
  int64_t rows() const { return count == 0 ? 0 : ends[count - 1]; }
  int64_t begin(int64_t s) const { return s == 0 ? 0 : ends[s - 1]; }
  int64_t end(int64_t s) const { return ends[s]; }
  // The sentence that a row is in; `count` behind the last one.
  int64_t Of(int64_t row) const {
    return std::upper_bound(ends, ends + count, row) - ends;
  }
};

}  // namespace thimble::kernels
