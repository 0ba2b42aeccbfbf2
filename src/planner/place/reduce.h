// SPDX-License-Identifier: Apache-2.0
//
// Simplifications of a placement problem that cost nothing: the best placement
// of what is left is as low as that of the whole. Pure functions.
//
//   - Of the moments of time only those count whose live buffers are not all
//     live at another one.
//   - Buffers that live throughout may lie at the bottom: none can be in
//     another's way there.
//   - What is then apart in time can be placed apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/place/place.h"

namespace thimble::planner {

// Buffers that can be placed without looking at any other, from `bottom` on.
struct PlacementPart {
  std::vector<uint32_t> members;        // indices into the whole problem
  std::vector<BufferRequest> requests;  // theirs
  // The same with the part's own time: only moments that count. Who lives with
  // whom is the same.
  std::vector<BufferRequest> compressed;
  size_t bottom = 0;
};

// Places the buffers that belong at a bottom and returns the other ones.
// REQUIRES: offsets.size() == requests.size().
std::vector<PlacementPart> Reduce(std::span<const BufferRequest> requests,
                                  std::span<size_t> offsets);

}  // namespace thimble::planner
