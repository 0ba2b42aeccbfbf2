// SPDX-License-Identifier: Apache-2.0
#include "planner/recompute/two_pass_costs.h"

#include <algorithm>
#include <span>

#include "graph/op.h"
#include "planner/two_pass.h"

namespace thimble::planner {
namespace {

// What `v` of one program is in the other, which has the same forward ops.
std::vector<ValueId> SameValues(const Program& from,
                                std::span<const ValueId> values,
                                const Program& to) {
  std::vector<ValueId> same;
  for (ValueId v : values) {
    const OpId producer = from.graph.value(v).producer;
    const std::vector<ValueId>& made = from.graph.op(producer).outputs;
    const auto at = std::find(made.begin(), made.end(), v) - made.begin();
    same.push_back(to.graph.op(producer).outputs[static_cast<size_t>(at)]);
  }
  return same;
}

int64_t FlopsOfStage(const Graph& graph, const Stage& stage) {
  int64_t flops = 0;
  for (OpId id : stage.backward) {
    const Op& op = graph.op(id);
    flops += op.def->Flops(graph.InputSpecs(op), graph.OutputSpecs(op));
  }
  return flops;
}

bool Beats(const SaveOption& a, const SaveOption& b) {
  return a.saved <= b.saved && a.forward_peak <= b.forward_peak &&
         a.backward_peak <= b.backward_peak &&
         a.backward_cost <= b.backward_cost;
}

}  // namespace

MeasuredChain MeasureChainInTwoPasses(const Program& program,
                                      const Chain& chain,
                                      const PlanOptions& options) {
  MeasuredChain measured = MeasureChain(program, chain, options);
  const Program other = InTwoPasses(program, FindTwoPassPairs(program));
  Chain other_chain = chain;
  for (Stage& stage : other_chain.stages) {
    stage.carried = SameValues(program, stage.carried, other);
  }
  const MeasuredChain more = MeasureChain(other, other_chain, options);
  for (size_t s = 0; s < chain.stages.size(); ++s) {
    const int64_t extra = FlopsOfStage(other.graph, chain.stages[s]) -
                          FlopsOfStage(program.graph, chain.stages[s]);
    std::vector<SaveOption>& known = measured.stages[s].options;
    for (size_t o = 0; o < more.stages[s].options.size(); ++o) {
      SaveOption option = more.stages[s].options[o];
      option.backward_cost += extra;
      const auto beats = [&](const SaveOption& k) { return Beats(k, option); };
      if (std::any_of(known.begin(), known.end(), beats)) continue;
      known.push_back(option);
      measured.saved[s].push_back(SameValues(other, more.saved[s][o], program));
    }
  }
  return measured;
}

}  // namespace thimble::planner
