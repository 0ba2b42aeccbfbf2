// SPDX-License-Identifier: Apache-2.0
#include "runtime/executor.h"

#include <cstring>

#include "base/check.h"
#include "graph/op.h"

namespace thimble::runtime {
namespace {

BindContext MakeBindContext(const Plan& plan, const ScheduledOp& scheduled,
                            std::byte* arena, ThreadPool& pool) {
  const Graph& graph = plan.graph();
  const Op& op = graph.op(scheduled.op);
  BindContext context;
  context.def = op.def.get();
  context.inputs = graph.InputSpecs(op);
  context.outputs = graph.OutputSpecs(op);
  for (ValueId v : op.inputs) {
    context.input_bytes.push_back(arena + plan.OffsetOf(v));
  }
  for (ValueId v : op.outputs) {
    if (plan.IsCarried(v)) context.carried |= 1u << context.output_bytes.size();
    context.output_bytes.push_back(arena + plan.OffsetOf(v));
  }
  TH_CHECK((context.carried & ~op.def->Accumulates()) == 0);
  context.kernel.pool = &pool;
  context.kernel.workspace = op.def->Scratch(context.inputs, context.outputs);
  if (scheduled.scratch.has_value()) {
    context.kernel.scratch = arena + plan.buffers()[*scheduled.scratch].offset;
  }
  return context;
}

}  // namespace

Executor::Executor(const Plan& plan, std::byte* arena, ThreadPool& pool,
                   bool poison)
    : plan_(plan), arena_(arena), poison_(poison) {
  for (uint32_t t = 0; t < plan.schedule().size(); ++t) {
    const ScheduledOp& scheduled = plan.schedule()[t];
    Step step;
    if (!plan.graph().op(scheduled.op).def->IsView()) {
      step.run = Bind(MakeBindContext(plan, scheduled, arena, pool));
    }
    // What lives to the end of time is state, or what the host reads then.
    for (uint32_t b = 0; b < plan.buffers().size(); ++b) {
      const uint32_t end = plan.buffers()[b].live.end;
      const bool held = end == plan.schedule().size();
      if (poison && end == t + 1 && !held) step.expiring.push_back(b);
    }
    phases_[static_cast<size_t>(scheduled.phase)].push_back(std::move(step));
  }
}

void Executor::Run(Phase phase, const RunContext& run) const {
  for (const Step& step : phases_[static_cast<size_t>(phase)]) {
    if (step.run) step.run(run);
    if (poison_) Poison(step);
  }
}

void Executor::Poison(const Step& step) const {
  for (uint32_t b : step.expiring) {
    const Buffer& buffer = plan_.buffers()[b];
    std::memset(arena_ + buffer.offset, 0xFF, buffer.bytes);
  }
}

}  // namespace thimble::runtime
