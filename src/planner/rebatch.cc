// SPDX-License-Identifier: Apache-2.0
#include "planner/rebatch.h"

#include <vector>

#include "base/check.h"
#include "graph/op.h"

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
  Model changed = model;
  changed.graph = Graph();
  // Values keep their ids: those without a producer come in between.
  size_t op = 0;
  while (changed.graph.values().size() < model.graph.values().size()) {
    const Value& v = model.graph.values()[changed.graph.values().size()];
    if (!v.producer.valid()) {
      ValueSpec spec = v.spec;
      if (spec.batched) spec.shape = WithRows(spec.shape, images);
      changed.graph.AddValue(v.name, spec, v.role, v.init);
      continue;
    }
    const Op& next = model.graph.ops()[op++];
    const auto made =
        changed.graph.AddOp(next.name, next.def, next.inputs, v.role);
    TH_CHECK(made.ok() && *made == next.outputs);
  }
  TH_CHECK(op == model.graph.ops().size());
  return changed;
}

}  // namespace thimble::planner
