// SPDX-License-Identifier: Apache-2.0
//
// A program made from another one, op by op. Values are named by the source's
// ids; each stands for what the latest op that was said to make it has made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "planner/program.h"

namespace thimble::planner {

class ProgramCopy {
 public:
  // Starts with all that no op makes. The source must outlive the copy.
  explicit ProgramCopy(const Program& source);

  // Its results stand for the first of `outputs`, with their roles.
  OpId AddOp(std::string name, std::shared_ptr<const OpDef> def,
             const std::vector<ValueId>& inputs,
             const std::vector<ValueId>& outputs);

  // With the source's ends, parameters and statistics; ops have no origins and
  // are in no phase yet.
  Program Take();

 private:
  ValueId Now(ValueId v) const { return v.valid() ? now_[v.i] : v; }
  PhaseEnds EndsOf(const PhaseEnds& ends) const;

  const Program& source_;
  Program made_;
  std::vector<ValueId> now_;  // per value of the source
};

}  // namespace thimble::planner
