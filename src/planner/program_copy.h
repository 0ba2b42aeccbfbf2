// SPDX-License-Identifier: Apache-2.0
//
// A program made from another one, op by op (graph_copy.h).
#pragma once

#include "planner/graph_copy.h"
#include "planner/program.h"

namespace thimble::planner {

class ProgramCopy {
 public:
  // Starts with all that no op makes. The source must outlive the copy.
  explicit ProgramCopy(const Program& source)
      : source_(source), graph_(source.graph) {}

  GraphCopy& graph() { return graph_; }

  // With the source's ends, parameters and statistics; ops have no origins and
  // are in no phase yet.
  Program Take();

 private:
  const Program& source_;
  GraphCopy graph_;
};

}  // namespace thimble::planner
