// SPDX-License-Identifier: Apache-2.0
//
// Where the kept values of sparse weights stand in dense ones, by the
// definition of thimble/sparsity.h. One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "thimble/plan.h"
#include "thimble/session.h"
#include "thimble/sparsity.h"

namespace thimble::testing {

// The pattern of sparse weight m as it is now: a view of the session's index.
inline Pattern PatternOf(Session& session, size_t m) {
  const SparsePool& pool = *session.plan().sparse();
  return pool.layout.Of(session.Bytes(pool.index).data(), m);
}

// Of each kept value, in the order of the pool: which element of the dense
// weight it is.
inline std::vector<size_t> PlacesOf(const Pattern& pattern,
                                    const Shape& weight) {
  const int64_t taps = weight.elements_from(2);
  std::vector<size_t> places;
  std::vector<uint16_t> columns(static_cast<size_t>(pattern.matrix.columns));
  for (PatternReader reader(pattern); reader.row() < pattern.matrix.rows;) {
    const int64_t row = reader.row();
    const int64_t count = reader.count();
    reader.Read(columns.data());
    for (int64_t k = 0; k < count; ++k) {
      const int64_t column = columns[static_cast<size_t>(k)];
      for (int64_t i = 0; i < pattern.block.values(); ++i) {
        const int64_t output =
            row * pattern.block.outputs + i / pattern.block.inputs;
        const int64_t input =
            column / taps * pattern.block.inputs + i % pattern.block.inputs;
        places.push_back(static_cast<size_t>(
            (output * weight[1] + input) * taps + column % taps));
      }
    }
  }
  return places;
}

// A tensor's elements: zero but for the kept values.
inline std::vector<float> Scattered(std::span<const float> values,
                                    const std::vector<size_t>& places,
                                    size_t elements) {
  std::vector<float> dense(elements);
  for (size_t i = 0; i < places.size(); ++i) dense[places[i]] = values[i];
  return dense;
}

}  // namespace thimble::testing
