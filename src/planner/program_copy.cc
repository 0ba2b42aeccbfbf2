// SPDX-License-Identifier: Apache-2.0
#include "planner/program_copy.h"

namespace thimble::planner {

PhaseEnds ProgramCopy::EndsOf(const PhaseEnds& ends) const {
  return {graph_.Now(ends.images), graph_.Now(ends.labels),
          graph_.Now(ends.logits), graph_.Now(ends.loss),
          graph_.Now(ends.correct)};
}

Program ProgramCopy::Take() {
  Program made;
  made.microbatches = source_.microbatches;
  made.train = EndsOf(source_.train);
  made.evaluate = EndsOf(source_.evaluate);
  for (const ParameterState& p : source_.parameters) {
    ParameterState now{graph_.Now(p.parameter), graph_.Now(p.gradient), {}};
    for (ValueId v : p.state) now.state.push_back(graph_.Now(v));
    made.parameters.push_back(std::move(now));
  }
  for (ValueId v : source_.statistics) made.statistics.push_back(graph_.Now(v));
  made.graph = graph_.Take();
  return made;
}

}  // namespace thimble::planner
