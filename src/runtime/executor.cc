// SPDX-License-Identifier: Apache-2.0
#include "runtime/executor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <span>

#include "base/check.h"
#include "graph/op.h"
#include "kernels/elementwise/elementwise.h"
#include "runtime/sparse_members.h"

namespace thimble::runtime {
namespace {

// Inputs or outputs of an op; bits of a word stand for them elsewhere.
constexpr size_t kMostValues = 32;
// Weights, gradients and state of an op that are sparse.
constexpr size_t kMostSparse = 8;

// Bit i: output i is carried, see Plan::IsCarried.
uint32_t CarriedOutputs(const Plan& plan, const Op& op) {
  uint32_t carried = 0;
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    if (plan.IsCarried(op.outputs[i])) carried |= 1u << i;
  }
  return carried;
}

std::vector<std::vector<uint32_t>> ExpiringBuffers(const Plan& plan) {
  const size_t end_of_time = plan.schedule().size();
  std::vector<std::vector<uint32_t>> expiring(end_of_time);
  for (uint32_t b = 0; b < plan.buffers().size(); ++b) {
    const uint32_t end = plan.buffers()[b].live.end;
    // What lives to the end of time is state, or what the host reads then.
    if (end != end_of_time) expiring[end - 1].push_back(b);
  }
  return expiring;
}

}  // namespace

Executor::Executor(const Plan& plan, std::byte* arena, ThreadPool& pool,
                   const SessionOptions& options)
    : plan_(plan),
      arena_(arena),
      pool_(pool),
      watcher_(options.watcher),
      workspace_of_(plan.schedule().size()) {
  if (options.poison) expiring_ = ExpiringBuffers(plan);
  const Graph& graph = plan.graph();
  for (uint32_t t = 0; t < workspace_of_.size(); ++t) {
    const ScheduledOp& scheduled = plan.schedule()[t];
    Interval& phase = phases_[static_cast<size_t>(scheduled.phase)];
    if (phase.end == 0) phase.begin = phase.end = t;
    TH_CHECK(phase.end == t);  // a phase is one stretch of time
    ++phase.end;
    const Op& op = graph.op(scheduled.op);
    TH_CHECK(op.inputs.size() <= kMostValues &&
             op.outputs.size() <= kMostValues);
    TH_CHECK((CarriedOutputs(plan, op) & ~op.def->Accumulates()) == 0);
    const Workspace workspace =
        op.def->Scratch(graph.InputSpecs(op), graph.OutputSpecs(op));
    const auto known = std::ranges::find(workspaces_, workspace);
    workspace_of_[t] = static_cast<uint32_t>(known - workspaces_.begin());
    if (known == workspaces_.end()) workspaces_.push_back(workspace);
  }
}

const Op& Executor::OpAt(uint32_t time) const {
  return plan_.graph().op(plan_.schedule()[time].op);
}

BoundValue Executor::Bind(ValueId v, Pattern& pattern) const {
  const Value& value = plan_.graph().value(v);
  BoundValue bound = {.spec = &value.spec,
                      .data = arena_ + plan_.OffsetOf(v),
                      .stream = value.stream};
  const ValueId pool = plan_.PoolOf(v);
  if (!pool.valid()) return bound;
  pattern = MemberPattern(plan_, arena_, value.spec);
  bound.pattern = &pattern;
  bound.pool = &plan_.graph().value(pool).spec;
  bound.first = FirstInPool(plan_, arena_, value.spec);
  return bound;
}

bool Executor::RunOp(uint32_t time, const RunContext& run) const {
  const ScheduledOp& scheduled = plan_.schedule()[time];
  const Op& op = OpAt(time);
  if (op.def->IsView()) return true;
  std::array<BoundValue, kMostValues> inputs;
  std::array<BoundValue, kMostValues> outputs;
  std::array<Pattern, kMostSparse> patterns;
  size_t sparse = 0;
  const auto bind = [&](std::span<const ValueId> ids,
                        std::span<BoundValue> values) {
    for (size_t i = 0; i < ids.size(); ++i) {
      values[i] = Bind(ids[i], patterns[sparse]);
      if (values[i].pattern == nullptr) continue;
      TH_CHECK(++sparse < kMostSparse);
    }
    return values.first(ids.size());
  };
  std::byte* scratch = nullptr;
  if (scheduled.scratch.has_value()) {
    scratch = arena_ + plan_.buffers()[*scheduled.scratch].offset;
  }
  const BoundOp bound = {
      .inputs = bind(op.inputs, inputs),
      .outputs = bind(op.outputs, outputs),
      .carried = CarriedOutputs(plan_, op),
      .kernel = {.pool = &pool_,
                 .scratch = scratch,
                 .workspace = workspaces_[workspace_of_[time]]}};
  op.def->Run(bound, run);
  return !run.look_at_gradients || GradientsAreFinite(op, bound, run);
}

// While they are still in the caches.
bool Executor::GradientsAreFinite(const Op& op, const BoundOp& bound,
                                  const RunContext& run) const {
  const bool folds = !plan_.options().precision.keeps_gradients;
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    const Value& value = plan_.graph().value(op.outputs[i]);
    if (value.role != Role::kGradient &&
        !(folds && value.role == Role::kActivationGradient)) {
      continue;
    }
    const BoundValue& output = bound.outputs[i];
    const int64_t elements = output.pattern != nullptr
                                 ? output.elements()
                                 : run.Elements(value.spec);
    if (!kernels::AllFinite(elements, output.tensor().values(), bound.kernel)) {
      return false;
    }
  }
  return true;
}

bool Executor::RunFrom(uint32_t time, Phase phase,
                       const RunContext& asked) const {
  const Interval span = phases_[static_cast<size_t>(phase)];
  std::atomic<bool> overflow = false;
  RunContext run = asked;
  if (run.look_at_gradients) run.overflow = &overflow;
  bool is_finite = run.is_finite_so_far;
  for (uint32_t t = std::max(time, span.begin); t < span.end; ++t) {
    const bool keeps_state = !is_finite && phase == Phase::kMicrobatch;
    if (!keeps_state || OpAt(t).def->Mutates() == 0) {
      is_finite = RunOp(t, run) && is_finite &&
                  !overflow.load(std::memory_order_relaxed);
    }
    if (watcher_ != nullptr) watcher_->Ran(t);
    if (!expiring_.empty()) Poison(t);
  }
  return is_finite;
}

void Executor::Poison(uint32_t time) const {
  for (uint32_t b : expiring_[time]) {
    const Buffer& buffer = plan_.buffers()[b];
    std::memset(arena_ + buffer.offset, 0xFF, buffer.bytes);
  }
}

}  // namespace thimble::runtime
