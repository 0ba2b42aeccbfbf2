// SPDX-License-Identifier: Apache-2.0
//
// An exhaustive search for a placement within a limit, for few buffers. Every
// placement can be pushed down until each buffer stands on another one or on
// the bottom, without a change of which is below which. So it is enough to look
// at the lowest moment of the skyline: one of the buffers that live there
// stands on it, or the place is lost up to where one could stand.
//
//   ┌───┐ ?     Nobody on the right: then d, who lives there and
//   │ c │       where c does, starts where c ends. Where what is
//   ├───┴──┐    lost and the buffers still to come exceed the
//   │  b   │    limit, the search turns back.
//   └──────┘
//
// A search that begins wrong takes ages to find out. So it begins again and
// again, each time with other buffers first, until one of them has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "planner/place/place.h"

namespace thimble::planner {

// A placement of at most `limit` bytes. Nothing where there is none, or where
// none was found by placing buffers `most_tries` times. Deterministic.
std::optional<Placement> PlaceCanonically(
    std::span<const BufferRequest> requests, size_t limit, uint64_t most_tries);

}  // namespace thimble::planner
