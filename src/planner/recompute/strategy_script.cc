// SPDX-License-Identifier: Apache-2.0
#include "planner/recompute/strategy_script.h"

#include "graph/op.h"
#include "ops/batch_norm.h"
#include "ops/relu.h"
#include "planner/recompute/chain.h"
#include "planner/recompute/rewrite.h"
#include "planner/recompute/script.h"
#include "planner/recompute/segments.h"
#include "planner/two_pass.h"

namespace thimble::planner {
namespace {

bool IsNormOrRelu(const Op& op) {
  return Is<ops::BatchNormTrain>(op) || Is<ops::Relu>(op) ||
         Is<ops::ReluWithMask>(op);
}

// Whole tensors behind batch norms and ReLUs are made again; masks stay.
Script WithoutNorms(const Program& program, const Chain& chain) {
  ScriptWriter writer(program, chain);
  for (size_t s = 0; s < chain.stages.size(); ++s) writer.ForwardAndKeep(s);
  for (const Stage& stage : chain.stages) {
    for (OpId id : stage.forward) {
      const Op& op = program.graph.op(id);
      if (IsNormOrRelu(op)) writer.Forget(op.outputs[0]);
    }
  }
  for (size_t s = chain.stages.size(); s-- > 0;) writer.Backward(s);
  return writer.Take();
}

// Everything in the order of the program.
Script WithoutRecomputation(const Program& program) {
  return program.phases[static_cast<size_t>(Phase::kMicrobatch)];
}

}  // namespace

Script ScriptOf(const Program& program, const Chain& chain,
                const Strategy& strategy, ScriptMeter& meter) {
  if (strategy.kind == Strategy::Kind::kNone) {
    return WithoutRecomputation(program);
  }
  if (strategy.kind == Strategy::Kind::kNoBn) {
    return WithoutNorms(program, chain);
  }
  const auto bytes = [&](const SegmentPlan& plan) {
    return meter.Measure(WriteScript(program, chain, plan)).most_live;
  };
  return WriteScript(program, chain,
                     CutIntoSegments(program, chain, strategy, bytes));
}

Program ApplyStrategy(const Program& program, const Strategy& strategy,
                      const PlanOptions& options) {
  if (!options.training) return program;
  const auto rewritten = [&] {
    if (strategy.kind == Strategy::Kind::kNone) return program;
    const Chain chain = FindChain(program);
    ScriptMeter meter(program, options);
    return Rewrite(program, ScriptOf(program, chain, strategy, meter));
  };
  if (!options.two_pass) return rewritten();
  return WithLowestTwoPassPeak(rewritten(), options);
}

}  // namespace thimble::planner
