// SPDX-License-Identifier: Apache-2.0
//
// Ends of a model in another graph. A pure function.
#pragma once

#include "thimble/graph.h"

namespace thimble {

// The same ends with `now(value)` in place of each value.
template <typename Now>
Ends MapEnds(Ends ends, const Now& now) {
  for (std::vector<End>* list : {&ends.feeds, &ends.outputs, &ends.metrics}) {
    for (End& end : *list) end.value = now(end.value);
  }
  if (ends.loss.valid()) ends.loss = now(ends.loss);
  return ends;
}

}  // namespace thimble
