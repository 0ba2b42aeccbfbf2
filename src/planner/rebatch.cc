// SPDX-License-Identifier: Apache-2.0
#include "planner/rebatch.h"

#include <utility>
#include <vector>

#include "base/check.h"
#include "planner/graph_copy.h"

namespace thimble::planner {

Model Rebatch(const Model& model, int64_t batch) {
  TH_CHECK(batch >= 1);
  const auto now = model.graph.axes();
  std::vector<Axis> axes(now.begin(), now.end());
  for (Axis& axis : axes) {
    // Rounded up: a part of a batch may hold more than its share.
    axis.capacity = (axis.capacity * batch + model.batch() - 1) / model.batch();
  }
  GraphCopy copy(model.graph, std::move(axes));
  for (const Op& op : model.graph.ops()) copy.Add(op);
  return TakeModel(model, copy);
}

}  // namespace thimble::planner
