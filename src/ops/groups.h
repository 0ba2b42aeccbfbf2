// SPDX-License-Identifier: Apache-2.0
//
// Groups of images with batch statistics of their own: an op runs its kernel
// once for each, on shifted pointers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "thimble/graph.h"

namespace thimble::ops {

struct Group {
  int64_t index;
  int64_t first;  // image
  int64_t images;
};

// Where the group's images begin, in elements of a value.
inline int64_t FirstElement(const ValueSpec& spec, const Group& group) {
  return group.first * spec.shape.elements_from(1);
}

// Calls body(group) for the groups that `count` images make, in order. The last
// one may be smaller. REQUIRES: group_images >= 1.
template <typename F>
void ForGroups(int64_t group_images, int64_t count, const F& body) {
  int64_t index = 0;
  for (int64_t first = 0; first < count; first += group_images) {
    body(Group{index++, first, std::min(group_images, count - first)});
  }
}

}  // namespace thimble::ops
