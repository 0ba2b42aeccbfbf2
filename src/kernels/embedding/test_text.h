// SPDX-License-Identifier: Apache-2.0
//
// Test only: a text of random tokens, some of them often.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/sentences.h"
#include "kernels/testing.h"

namespace thimble::kernels::testing {

using Doubles = std::vector<double>;

inline constexpr float kScale = 1.75f;
inline constexpr double kUnit = std::numeric_limits<float>::epsilon() / 2;

struct TestText {
  // Sentences of up to `longest` rows, some of them empty.
  TestText(int64_t vocabulary_, int64_t rows, int64_t longest)
      : vocabulary(vocabulary_) {
    for (int64_t r = 0; r < rows; ++r) {
      const double u = 0.5 * (double{At(r)} + 1);
      const double share = r % 3 == 0 ? u * u * u : u;
      tokens.push_back(
          static_cast<int32_t>(share * static_cast<double>(vocabulary)));
    }
    // The first sentence is as long as any; the next one is empty.
    for (int64_t end = 0, i = 0; end < rows; ++i) {
      const auto length = static_cast<int64_t>(
          0.5 * (double{At(rows + i)} + 1) * static_cast<double>(longest + 1));
      end = std::min(rows, i == 1 ? end : end + (i == 0 ? longest : length));
      ends.push_back(static_cast<int32_t>(end));
    }
  }
  static float At(int64_t i) { return TestValue(77, static_cast<uint64_t>(i)); }

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  Sentences sentences() const {
    return {static_cast<int64_t>(ends.size()), ends.data()};
  }

  int64_t vocabulary;
  std::vector<int32_t> tokens;
  std::vector<int32_t> ends;
};

inline Doubles SizesOf(Doubles values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

}  // namespace thimble::kernels::testing
