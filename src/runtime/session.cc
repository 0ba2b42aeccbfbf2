// SPDX-License-Identifier: Apache-2.0
#include "thimble/session.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/half.h"
#include "base/memory_limits.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "kernels/dot/dot_form.h"
#include "kernels/rewire/rewire.h"
#include "kernels/target.h"
#include "runtime/arena.h"
#include "runtime/executor.h"
#include "runtime/sparse_members.h"

namespace thimble {

struct Session::Impl {
  Impl(const Plan& p, runtime::Arena a, std::unique_ptr<ThreadPool> threads,
       const SessionOptions& options)
      : plan(p),
        arena(std::move(a)),
        pool(std::move(threads)),
        executor(plan, arena.base(), *pool, options),
        updates_in_backward(p.UpdatesInBackward()) {}

  const Plan& plan;
  runtime::Arena arena;
  std::unique_ptr<ThreadPool> pool;
  runtime::Executor executor;
  uint64_t seed = 0;
  uint64_t steps = 0;    // done
  uint64_t skipped = 0;  // of these
  // Unset: nothing is scaled, and nothing looked at.
  std::optional<float> loss_scale;
  bool is_finite = true;  // the gradients of this step so far
  bool updates_in_backward;
  // Of the step, where it is known before the update.
  std::optional<float> learning_rate;
  float next_learning_rate = 0.0f;
  std::optional<RewireOptions> rewire;  // at the next update
  std::optional<RewireResult> rewired;  // by the last one
  // Where the last evaluation went on behind: what it needs was seen to.
  std::optional<uint32_t> behind;
};

namespace {

float InitialValue(const Init& init, const RandomStream& random, size_t i) {
  switch (init.kind) {
    case Init::Kind::kConstant:
      return init.value;
    case Init::Kind::kNormal:
      return init.value * random.Normal(i);
    case Init::Kind::kUniform:
      return init.value * (2.0f * random.Uniform(i) - 1.0f);
  }
  return 0.0f;
}

// Calls f(i, element) for each of what is stored, `element` being its place in
// the whole of the value.
template <typename F>
void ForEachStored(const Value& value, const Pattern* pattern, const F& f) {
  const auto elements = static_cast<size_t>(value.spec.shape.elements());
  if (pattern == nullptr) {
    for (size_t i = 0; i < elements; ++i) f(i, i);
    return;
  }
  const int64_t taps = value.spec.shape.elements_from(2);
  const int64_t inputs = value.spec.shape[1];
  std::vector<uint16_t> columns(static_cast<size_t>(pattern->matrix.columns));
  size_t i = 0;
  for (PatternReader row(*pattern); row.row() < pattern->matrix.rows;) {
    const int64_t output = row.row() * pattern->block.outputs;
    const int64_t kept = row.count();
    row.Read(columns.data());
    for (int64_t k = 0; k < kept; ++k) {
      const int64_t column = columns[static_cast<size_t>(k)];
      const int64_t input = column / taps * pattern->block.inputs;
      for (int64_t o = 0; o < pattern->block.outputs; ++o) {
        for (int64_t c = 0; c < pattern->block.inputs; ++c) {
          const int64_t at =
              ((output + o) * inputs + input + c) * taps + column % taps;
          f(i++, static_cast<size_t>(at));
        }
      }
    }
  }
}

// What is kept of a sparse value begins as it would in a dense one. REQUIRES: a
// constant 0 for what is not stored as a float type.
void Fill(const Value& value, const Pattern* pattern, uint64_t seed,
          uint32_t stream, std::span<std::byte> bytes) {
  const RandomStream random(seed, 0, stream);
  const auto fill = [&](auto first, const auto& narrow) {
    ForEachStored(value, pattern, [&](size_t i, size_t element) {
      const auto x = narrow(InitialValue(value.init, random, element));
      std::memcpy(&bytes[i * sizeof(first)], &x, sizeof(first));
    });
  };
  switch (value.spec.storage.dtype) {
    case DType::kF32:
      return fill(float(), [](float x) { return x; });
    case DType::kF16:
      return fill(uint16_t(), F16Of);
    case DType::kBF16:
      return fill(uint16_t(), BF16Of);
    default:
      TH_CHECK(value.init.kind == Init::Kind::kConstant &&
               value.init.value == 0.0f);
      std::memset(bytes.data(), 0, bytes.size());
  }
}

void CheckParts(const Plan& plan, const AxisParts& parts) {
  const auto axes = plan.graph().axes();
  for (size_t i = 0; i < axes.size(); ++i) {
    const AxisPart& part = parts[i];
    TH_CHECK(part.count >= 1 && part.count <= axes[i].capacity);
    TH_CHECK(part.first >= 0 && part.first + part.count <= part.total);
  }
}

}  // namespace

std::string_view TargetInUse() {
  if (!kernels::CheckCpu().ok()) return "";
  return kernels::TargetName(kernels::ActiveTarget());
}

Result<std::unique_ptr<Session>> Session::Create(
    const Plan& plan, const SessionOptions& options) {
  Status cpu = kernels::CheckCpu();
  if (!cpu.ok()) return cpu;
  const uint64_t arena_bytes = plan.arena_bytes();
  Status limits = CheckMemoryLimits(
      arena_bytes, arena_bytes + BesideArenaBytes(plan), MemoryLimits());
  if (!limits.ok()) return limits;
  auto pool = ThreadPool::Create(plan.options().threads);
  if (!pool.ok()) return pool.status();
  auto arena = runtime::Arena::Map(arena_bytes);
  if (!arena.ok()) return arena.status();
  if (options.poison) {
    std::memset(arena->base(), 0xFF, arena_bytes);
  }
  return std::unique_ptr<Session>(new Session(std::make_unique<Impl>(
      plan, *std::move(arena), *std::move(pool), options)));
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Session::~Session() = default;

const Plan& Session::plan() const { return impl_->plan; }

std::string_view Session::target() const { return kernels::ArithmeticName(); }

void Session::Initialize(uint64_t seed) {
  const Graph& graph = plan().graph();
  if (plan().sparse().has_value()) InitializePools(seed);
  uint32_t stream = 0;
  for (const ParameterState& state : plan().parameters()) {
    const Value& parameter = graph.value(state.parameter);
    const bool sparse = parameter.spec.storage.sparsity.has_value();
    Pattern pattern;
    if (sparse) {
      pattern =
          runtime::MemberPattern(plan(), impl_->arena.base(), parameter.spec);
    }
    Fill(parameter, sparse ? &pattern : nullptr, seed, stream++,
         Bytes(state.parameter));
    // Streams of parameters and statistics do not depend on the optimizer.
    for (ValueId v : state.state) {
      if (plan().PoolOf(v).valid()) continue;
      Fill(graph.value(v), nullptr, seed, 0, Bytes(v));
    }
  }
  for (ValueId v : plan().statistics()) {
    Fill(graph.value(v), nullptr, seed, stream++, Bytes(v));
  }
  GoOnAfter(seed, 0);
}

void Session::InitializePools(uint64_t seed) {
  const Graph& graph = plan().graph();
  const SparsePool& pool = *plan().sparse();
  std::vector<int64_t> kept;
  for (uint32_t m : pool.members) {
    const ValueId weight = plan().parameters()[m].parameter;
    kept.push_back(graph.value(weight).spec.storage.sparsity->kept);
  }
  kernels::WriteInitialIndex(pool.layout, kept, seed, Bytes(pool.index).data());
  // Optimizers begin with zeros.
  for (ValueId v : pool.state) {
    const std::span<std::byte> bytes = Bytes(v);
    std::memset(bytes.data(), 0, bytes.size());
  }
}

void Session::GoOnAfter(uint64_t seed, uint64_t steps, uint64_t skipped) {
  TH_CHECK(skipped <= steps);
  impl_->seed = seed;
  impl_->steps = steps;
  impl_->skipped = skipped;
}

PassResult Session::ResultOf(const Ends& ends) {
  PassResult result;
  if (ends.loss.valid()) result.loss = Floats(ends.loss)[0];
  for (size_t i = 0; i < ends.metrics.size(); ++i) {
    const ValueId metric = ends.metrics[i].value;
    const bool counts =
        plan().graph().value(metric).spec.storage == DType::kI32;
    result.metrics[i] = counts
                            ? static_cast<double>(Elements<int32_t>(metric)[0])
                            : static_cast<double>(Floats(metric)[0]);
  }
  return result;
}

PassResult Session::Differentiate(const AxisParts& parts) {
  CheckParts(plan(), parts);
  const AxisPart& part = parts[kBatchAxis.index()];
  // Without room for sums the next part would overwrite them.
  TH_CHECK(part.count == part.total || plan().microbatches() > 1);
  TH_CHECK(!impl_->updates_in_backward || impl_->learning_rate.has_value());
  if (part.first == 0) impl_->is_finite = true;
  const float scale = impl_->loss_scale.value_or(1.0f);
  impl_->is_finite = impl_->executor.Run(
      Phase::kMicrobatch, {.axes = parts,
                           .seed = impl_->seed,
                           .step = impl_->steps + 1,
                           .update = impl_->steps + 1 - impl_->skipped,
                           .accumulate = part.first > 0,
                           .learning_rate = impl_->learning_rate.value_or(0.0f),
                           .loss_scale = scale,
                           .look_at_gradients = impl_->loss_scale.has_value(),
                           .is_finite_so_far = impl_->is_finite,
                           .gradient_scale = 1.0f / scale,
                           .next_learning_rate = impl_->next_learning_rate});
  return ResultOf(plan().train_ends());
}

void Session::BeginStep(float learning_rate, float next_learning_rate) {
  impl_->learning_rate = learning_rate;
  impl_->next_learning_rate = next_learning_rate;
}

void Session::ScaleLoss(float scale) {
  TH_CHECK(scale > 0.0f);
  impl_->loss_scale = scale;
}

void Session::RewireAtUpdate(const RewireOptions& options) {
  TH_CHECK(plan().sparse().has_value());
  impl_->rewire = options;
}

const std::optional<RewireResult>& Session::rewired() const {
  return impl_->rewired;
}

StepOutcome Session::Update(float learning_rate, float next_learning_rate) {
  if (!impl_->is_finite) return Skip();
  RewireResult rewired;
  if (impl_->rewire.has_value()) {
    impl_->rewire->seed = impl_->seed;
    impl_->rewire->step = impl_->steps + 1;
  }
  impl_->executor.Run(
      Phase::kUpdate,
      {.seed = impl_->seed,
       .step = impl_->steps + 1,
       .update = impl_->steps + 1 - impl_->skipped,
       .learning_rate = learning_rate,
       .gradient_scale = 1.0f / impl_->loss_scale.value_or(1.0f),
       .next_learning_rate = next_learning_rate,
       .rewire = impl_->rewire.has_value() ? &*impl_->rewire : nullptr,
       .rewired = &rewired});
  impl_->rewired.reset();
  if (impl_->rewire.has_value()) impl_->rewired = rewired;
  impl_->rewire.reset();
  ++impl_->steps;
  impl_->learning_rate.reset();
  return StepOutcome::kApplied;
}

StepOutcome Session::Skip() {
  impl_->rewire.reset();
  impl_->rewired.reset();
  ++impl_->steps;
  ++impl_->skipped;
  impl_->learning_rate.reset();
  return StepOutcome::kSkipped;
}

PassResult Session::TrainStep(int64_t count, float learning_rate) {
  BeginStep(learning_rate, learning_rate);
  const PassResult result = Differentiate(count);
  Update(learning_rate);
  return result;
}

PassResult Session::Evaluate(const AxisParts& parts) {
  CheckParts(plan(), parts);
  impl_->executor.Run(Phase::kEvaluate, {.axes = parts});
  return ResultOf(plan().evaluate_ends());
}

PassResult Session::EvaluateBehind(ValueId made, const AxisParts& parts) {
  CheckParts(plan(), parts);
  const std::span<const ScheduledOp> schedule = plan().schedule();
  uint32_t from = 0;
  while (from < schedule.size() &&
         !(schedule[from].phase == Phase::kEvaluate && Makes(from, made))) {
    ++from;
  }
  TH_CHECK(from < schedule.size());
  if (impl_->behind != from) CheckKept(from);
  impl_->behind = from;
  impl_->executor.RunFrom(from + 1, Phase::kEvaluate, {.axes = parts});
  return ResultOf(plan().evaluate_ends());
}

bool Session::Makes(uint32_t time, ValueId value) const {
  const Op& op = plan().graph().op(plan().schedule()[time].op);
  return std::ranges::count(op.outputs, value) > 0;
}

// What ops behind `time` read was made behind it, or lives to the end.
void Session::CheckKept(uint32_t time) const {
  const Graph& graph = plan().graph();
  const std::span<const ScheduledOp> schedule = plan().schedule();
  const std::vector<End>& outputs = plan().evaluate_ends().outputs;
  std::vector<bool> made(graph.values().size());
  for (uint32_t t = 0; t < schedule.size(); ++t) {
    if (schedule[t].phase != Phase::kEvaluate) continue;
    const Op& op = graph.op(schedule[t].op);
    for (ValueId v : op.inputs) {
      TH_CHECK(t <= time || !made[v.i] ||
               std::ranges::count(outputs, v, &End::value) > 0);
    }
    for (ValueId v : op.outputs) made[v.i] = t <= time;
  }
}

std::span<std::byte> Session::Bytes(ValueId value) {
  std::byte* const arena = impl_->arena.base();
  std::byte* const data = arena + plan().OffsetOf(value);
  const ValueSpec& spec = plan().graph().value(value).spec;
  if (!plan().PoolOf(value).valid()) return {data, spec.bytes()};
  // Scales of a member lie elsewhere than its values.
  TH_CHECK(!spec.storage.blocks.has_value());
  const int64_t first = runtime::FirstInPool(plan(), arena, spec);
  const int64_t kept = runtime::MemberPattern(plan(), arena, spec).values();
  return {data + BytesFor(spec.storage.dtype, first),
          BytesFor(spec.storage.dtype, kept)};
}

ValueId Session::FeedNamed(const Ends& ends, std::string_view name) {
  const auto feed = std::ranges::find(ends.feeds, name, &End::name);
  TH_CHECK(feed != ends.feeds.end());
  return feed->value;
}

void Session::CheckStored(ValueId value, DType dtype) const {
  const Storage& storage = plan().graph().value(value).spec.storage;
  TH_CHECK(storage.dtype == dtype && !storage.blocks.has_value());
}

}  // namespace thimble
