// SPDX-License-Identifier: Apache-2.0
//
// Offsets for buffers with known lives: two that live at the same time must not
// share bytes, and the highest byte should be as low as can be. The problem is
// NP-hard; most live bytes at one time is a lower bound, and greedy orders
// usually meet it.
//
//   offset ^   +---------+
//          |   |    c    |          c goes into the lowest or the tightest gap
//          |   +----+----+---+      between the placed buffers that live with
//          |   | a  |    | b |
//          +---+----+----+---+--> time
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "thimble/plan.h"

namespace thimble::planner {

struct BufferRequest {
  Interval live;
  size_t bytes = 0;  // a multiple of the alignment
};

struct Placement {
  std::vector<size_t> offsets;  // one per request
  size_t bytes = 0;             // highest byte used
};

// Most bytes live at one time.
size_t LowerBound(std::span<const BufferRequest> requests);

// Places in the given order, each buffer at the lowest gap that holds it, or at
// the tightest one. Given a ceiling, those that live to the end hang from it,
// the first to come the highest: there are more and more of them, and among the
// others they would cut the room into pieces. REQUIRES: they fit below it.
enum class Fit { kLowest, kTightest };
Placement PlaceInOrder(std::span<const BufferRequest> requests,
                       std::span<const uint32_t> order, Fit fit,
                       std::optional<size_t> ceiling = std::nullopt);

// Reduces the problem (reduce.h), then takes the best of a portfolio for what
// is left: several orders with both fits, with and without a ceiling; while
// above the lower bound, for few buffers a search through all placements
// (canonical.h); then a bounded number of repairs of each order, which place
// the buffers at the top earlier, and of single moves in the best one.
// Deterministic.
Placement PlacePortfolio(std::span<const BufferRequest> requests);

}  // namespace thimble::planner
