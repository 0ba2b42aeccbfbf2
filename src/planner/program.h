// SPDX-License-Identifier: Apache-2.0
//
// Program: a model made explicit. One graph holds the executable ops of all
// phases; nothing is decided about memory yet.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "thimble/graph.h"
#include "thimble/plan.h"

namespace thimble::planner {

// Where an op of the microbatch phase comes from.
struct OpOrigin {
  enum class Part : uint8_t {
    kForward,
    kBackward,
    kRecompute,  // a forward op that runs again
    kOther,      // of another phase
  };
  Part part = Part::kOther;
  uint32_t source = 0;  // the model's op, where it is none of the others
};

struct Program {
  Graph graph;
  std::vector<OpOrigin> origins;  // per op of the graph
  Ends train, evaluate;
  std::vector<ParameterState> parameters;
  std::vector<ValueId> statistics;
  std::optional<SparsePool> sparse;
  int64_t microbatches = 1;  // runs of the microbatch phase in a step
  // Op ids of a phase, in the order of emission (a valid execution order).
  std::array<std::vector<OpId>, kPhases> phases;
};

// Makes forward, backward (reverse order, dW before dX, gradients of values
// with several readers summed), update and evaluation explicit. REQUIRES:
// `model` was accepted by Network::Finish and is for one microbatch. Without
// options.training only the evaluate phase is made. Where a step has several
// microbatches, the op that makes a parameter's gradient can accumulate it.
Program Differentiate(const Model& model, const PlanOptions& options,
                      int64_t microbatches);

}  // namespace thimble::planner
