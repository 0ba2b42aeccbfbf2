// SPDX-License-Identifier: Apache-2.0
#include "planner/program_copy.h"

namespace thimble::planner {

Program ProgramCopy::Take() {
  Program made;
  made.microbatches = source_.microbatches;
  made.train = EndsIn(graph_, source_.train);
  made.evaluate = EndsIn(graph_, source_.evaluate);
  for (const ParameterState& p : source_.parameters) {
    ParameterState now{graph_.Now(p.parameter), graph_.Now(p.gradient), {}};
    for (ValueId v : p.state) now.state.push_back(graph_.Now(v));
    made.parameters.push_back(std::move(now));
  }
  for (ValueId v : source_.statistics) made.statistics.push_back(graph_.Now(v));
  if (source_.sparse.has_value()) {
    made.sparse = source_.sparse;
    SparsePool& pool = *made.sparse;
    pool.index = graph_.Now(pool.index);
    pool.parameters = graph_.Now(pool.parameters);
    pool.gradients = graph_.Now(pool.gradients);
    for (ValueId& v : pool.state) v = graph_.Now(v);
  }
  made.graph = graph_.Take();
  return made;
}

}  // namespace thimble::planner
