// SPDX-License-Identifier: Apache-2.0
#include "thimble/session.h"

#include <cstring>

#include "base/check.h"
#include "base/memory_limits.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "kernels/target.h"
#include "runtime/arena.h"
#include "runtime/executor.h"

namespace thimble {

struct Session::Impl {
  Impl(const Plan& p, runtime::Arena a, std::unique_ptr<ThreadPool> threads,
       bool poison)
      : plan(p),
        arena(std::move(a)),
        pool(std::move(threads)),
        executor(plan, arena.base(), *pool, poison) {}

  const Plan& plan;
  runtime::Arena arena;
  std::unique_ptr<ThreadPool> pool;
  runtime::Executor executor;
  uint64_t seed = 0;
  uint64_t steps = 0;  // done
};

namespace {

void Fill(const Init& init, uint64_t seed, uint32_t stream,
          std::span<float> values) {
  const RandomStream random(seed, 0, stream);
  for (size_t i = 0; i < values.size(); ++i) {
    switch (init.kind) {
      case Init::Kind::kConstant:
        values[i] = init.value;
        break;
      case Init::Kind::kNormal:
        values[i] = init.value * random.Normal(i);
        break;
      case Init::Kind::kUniform:
        values[i] = init.value * (2.0f * random.Uniform(i) - 1.0f);
        break;
    }
  }
}

template <typename T>
std::span<T> CastSpan(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

}  // namespace

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
      plan, *std::move(arena), *std::move(pool), options.poison)));
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Session::~Session() = default;

const Plan& Session::plan() const { return impl_->plan; }

std::string_view Session::target() const {
  return kernels::TargetName(kernels::ActiveTarget());
}

void Session::Initialize(uint64_t seed) {
  const Graph& graph = plan().graph();
  uint32_t stream = 0;
  for (const ParameterState& state : plan().parameters()) {
    Fill(graph.value(state.parameter).init, seed, stream++,
         Floats(state.parameter));
    // Streams of parameters and statistics do not depend on the optimizer.
    for (ValueId v : state.state) Fill(graph.value(v).init, seed, 0, Floats(v));
  }
  for (ValueId v : plan().statistics()) {
    Fill(graph.value(v).init, seed, stream++, Floats(v));
  }
  GoOnAfter(seed, 0);
}

void Session::GoOnAfter(uint64_t seed, uint64_t steps) {
  impl_->seed = seed;
  impl_->steps = steps;
}

std::span<uint8_t> Session::train_images() {
  return CastSpan<uint8_t>(Bytes(plan().train_ends().images));
}

std::span<int32_t> Session::train_labels() {
  return CastSpan<int32_t>(Bytes(plan().train_ends().labels));
}

std::span<uint8_t> Session::evaluate_images() {
  return CastSpan<uint8_t>(Bytes(plan().evaluate_ends().images));
}

std::span<int32_t> Session::evaluate_labels() {
  return CastSpan<int32_t>(Bytes(plan().evaluate_ends().labels));
}

BatchResult Session::Differentiate(const Microbatch& part) {
  TH_CHECK(part.count >= 1 && part.count <= plan().microbatch());
  TH_CHECK(part.first >= 0 && part.first + part.count <= part.images);
  // Without room for sums the next part would overwrite them.
  TH_CHECK(part.count == part.images || plan().microbatches() > 1);
  impl_->executor.Run(Phase::kMicrobatch, {.count = part.count,
                                           .images = part.images,
                                           .first = part.first,
                                           .seed = impl_->seed,
                                           .step = impl_->steps + 1,
                                           .accumulate = part.first > 0});
  const PhaseEnds& ends = plan().train_ends();
  return {Floats(ends.loss)[0], CastSpan<int32_t>(Bytes(ends.correct))[0]};
}

StepOutcome Session::Update(float learning_rate) {
  impl_->executor.Run(Phase::kUpdate, {.learning_rate = learning_rate});
  ++impl_->steps;
  // Without loss scaling nothing asks for a step to be skipped.
  return StepOutcome::kApplied;
}

BatchResult Session::TrainStep(int64_t count, float learning_rate) {
  const BatchResult result = Differentiate(count);
  Update(learning_rate);
  return result;
}

BatchResult Session::Evaluate(int64_t count) {
  TH_CHECK(count >= 1 && count <= plan().microbatch());
  impl_->executor.Run(Phase::kEvaluate, {.count = count, .images = count});
  const PhaseEnds& ends = plan().evaluate_ends();
  return {Floats(ends.loss)[0], CastSpan<int32_t>(Bytes(ends.correct))[0]};
}

std::span<std::byte> Session::Bytes(ValueId value) {
  return {impl_->arena.base() + plan().OffsetOf(value),
          plan().graph().value(value).spec.bytes()};
}

std::span<float> Session::Floats(ValueId value) {
  TH_CHECK(plan().graph().value(value).spec.dtype == DType::kF32);
  return CastSpan<float>(Bytes(value));
}

}  // namespace thimble
