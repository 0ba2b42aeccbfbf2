// SPDX-License-Identifier: Apache-2.0
#include "planner/rebatch.h"

#include "base/check.h"
#include "planner/graph_copy.h"

namespace thimble::planner {
namespace {

// `shape` with another leading extent.
Shape WithRows(const Shape& shape, int64_t rows) {
  switch (shape.rank()) {
    case 1:
      return {rows};
    case 2:
      return {rows, shape[1]};
    case 3:
      return {rows, shape[1], shape[2]};
    case 4:
      return {rows, shape[1], shape[2], shape[3]};
    case 5:
      return {rows, shape[1], shape[2], shape[3], shape[4]};
    default:
      TH_CHECK(false && "a batched value has a leading extent");
      return shape;
  }
}

}  // namespace

Model Rebatch(const Model& model, int64_t images) {
  TH_CHECK(images >= 1);
  GraphCopy copy(model.graph, [images](ValueSpec spec) {
    if (spec.batched) spec.shape = WithRows(spec.shape, images);
    return spec;
  });
  for (const Op& op : model.graph.ops()) copy.Add(op);
  return TakeModel(model, copy);
}

}  // namespace thimble::planner
