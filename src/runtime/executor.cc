// SPDX-License-Identifier: Apache-2.0
#include "runtime/executor.h"

#include <cstring>
#include <utility>
#include <vector>

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
  const size_t end_of_time = plan.schedule().size();
  std::vector<std::vector<uint32_t>> expiring(poison ? end_of_time : 0);
  for (uint32_t b = 0; poison && b < plan.buffers().size(); ++b) {
    const uint32_t end = plan.buffers()[b].live.end;
    // What lives to the end of time is state, or what the host reads then.
    if (end != end_of_time) expiring[end - 1].push_back(b);
  }
  for (uint32_t t = 0; t < end_of_time; ++t) {
    const ScheduledOp& scheduled = plan.schedule()[t];
    Step step;
    if (!plan.graph().op(scheduled.op).def->IsView()) {
      step.run = Bind(MakeBindContext(plan, scheduled, arena, pool));
    }
    if (poison) step.expiring = std::move(expiring[t]);
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
