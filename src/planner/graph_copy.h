// SPDX-License-Identifier: Apache-2.0
//
// A graph made from another one, op by op. Values are named by the source's
// ids; each stands for what the latest op that was said to make it has made.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/op.h"
#include "thimble/graph.h"

namespace thimble::planner {

class GraphCopy {
 public:
  // Starts with all that no op makes. The source must outlive the copy.
  explicit GraphCopy(const Graph& source);
  // The same with other capacities of the axes.
  GraphCopy(const Graph& source, std::vector<Axis> axes);

  // Its results stand for the first of `outputs`, with their roles.
  OpId AddOp(std::string name, std::shared_ptr<const OpDef> def,
             const std::vector<ValueId>& inputs,
             const std::vector<ValueId>& outputs);
  OpId Add(const Op& op) {
    return AddOp(op.name, op.def, op.inputs, op.outputs);
  }

  // What a value of the source is in the copy; invalid for an invalid one.
  ValueId Now(ValueId v) const { return v.valid() ? now_[v.i] : v; }

  // The copy is of no use afterwards but for Now.
  Graph Take() { return std::move(made_); }

 private:
  const Graph& source_;
  Graph made_;
  std::vector<ValueId> now_;  // per value of the source
};

// `ends` of the source as values of the copy.
Ends EndsIn(const GraphCopy& copy, const Ends& ends);

// A model of the copied graph, with the source's name, ends and sparse weights.
Model TakeModel(const Model& source, GraphCopy& copy);

}  // namespace thimble::planner
