// SPDX-License-Identifier: Apache-2.0
//
// Session: a Plan with memory. It takes one arena of exactly the planned size
// and a thread pool, and runs the plan's phases in them; after Create nothing
// allocates. One thread at a time may use a session.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "thimble/plan.h"
#include "thimble/rewiring.h"
#include "thimble/status.h"

namespace thimble {

// Is told when an op has run, on the thread that uses the session: for
// profiles. `time` is its place in the plan's schedule.
class OpWatcher {
 public:
  virtual ~OpWatcher() = default;
  virtual void Ran(uint32_t time) = 0;
};

struct SessionOptions {
  // Debugging: fill every buffer with NaNs as soon as its life ends. Results
  // must not change.
  bool poison = false;
  // May be null; else it outlives the session.
  OpWatcher* watcher = nullptr;
};

// What a pass over one microbatch says.
struct PassResult {
  float loss = 0.0f;  // the mean over what it was fed
  // Sums over what it was fed, in the order of Ends::metrics.
  std::array<double, kMaxMetrics> metrics{};
};

// What became of a step at its update.
enum class StepOutcome {
  kApplied,
  kSkipped,  // the state is as it was; only the step's number has gone on
};

// The SIMD target that kernels use in this process ("avx2"). Empty where the
// CPU runs none, or THIMBLE_TARGET names none that it runs: sessions then fail.
std::string_view TargetInUse();

class Session {
 public:
  // The plan must outlive the session. Fails where memory or threads cannot be
  // had: a limit that the arena would pass once all of it is used (ulimit, a
  // cgroup's, the machine's memory) is told here.
  static Result<std::unique_ptr<Session>> Create(const Plan& plan,
                                                 const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Plan& plan() const;
  // The SIMD target in use ("avx2"; "avx2+dot" with THIMBLE_DOT=emulated); bits
  // are promised per target.
  std::string_view target() const;

  // Sets parameters and statistics to their initial values (a function of the
  // seed and the parameter's position alone) and the optimizer's state to zero,
  // and begins the run of that seed: GoOnAfter(seed, 0).
  void Initialize(uint64_t seed);
  // The next step is the one after `steps` steps of the run with this seed, on
  // which dropouts depend, `skipped` of which changed nothing. Update counts on
  // by itself: only who restores a state needs this.
  void GoOnAfter(uint64_t seed, uint64_t steps, uint64_t skipped = 0);

  // Where the caller puts a microbatch before Differentiate or Evaluate: the
  // feed of this name in plan().train_ends() or evaluate_ends(). REQUIRES:
  // there is one, and T is how it is stored.
  template <typename T>
  std::span<T> TrainFeed(std::string_view name) {
    return Elements<T>(FeedNamed(plan().train_ends(), name));
  }
  template <typename T>
  std::span<T> EvaluateFeed(std::string_view name) {
    return Elements<T>(FeedNamed(plan().evaluate_ends(), name));
  }

  // The rate of the next step and of the one after, for a plan that
  // UpdatesInBackward, before its Differentiate. Update is given the same.
  void BeginStep(float learning_rate, float next_learning_rate);

  // Forward and backward on what was put there, of which `parts` says how much
  // that is along each axis. The part that is first in its step overwrites the
  // gradients, the others add to them; after the last one they are those of the
  // mean loss over the step, until Update, if nothing else is run or written in
  // between but the feeds of the next part. REQUIRES: at least 1 and at most
  // the capacity of each axis, parts in order, and several of them only where
  // plan().microbatches() > 1.
  PassResult Differentiate(const AxisParts& parts);
  // For a graph with one axis: a part of a step,
  PassResult Differentiate(const AxisPart& part) {
    return Differentiate(AxisParts{part});
  }
  // and a step of one part, the first `count` rows.
  PassResult Differentiate(int64_t count) {
    return Differentiate({.first = 0, .count = count, .total = count});
  }
  // From the next part on, the loss's gradient is multiplied by `scale`, a
  // power of two, which Update takes out again. Also has Update skip a step in
  // which a parameter's gradient was infinite or no number. Where gradients of
  // weights are not kept, what was folded before that was found stays: the
  // velocities then, or weights, are not as before such a step.
  void ScaleLoss(float scale);
  // Applies the gradients and commits running statistics, or does neither. An
  // optimizer may want to know the rate of the step after this one.
  StepOutcome Update(float learning_rate, float next_learning_rate);
  StepOutcome Update(float learning_rate) {
    return Update(learning_rate, learning_rate);
  }
  // The next Update also rewires sparse weights, behind all else; if it skips,
  // this is skipped too. REQUIRES: the plan has some. The seed and the step of
  // `options` are the session's.
  void RewireAtUpdate(const RewireOptions& options);
  // What the last Update's rewiring did; none where it did not rewire.
  const std::optional<RewireResult>& rewired() const;
  // In place of Update: leaves all state as it is, and goes on.
  StepOutcome Skip();
  // Both, for a step of one part.
  PassResult TrainStep(int64_t count, float learning_rate);
  // Forward with running statistics. REQUIRES: as for Differentiate.
  PassResult Evaluate(const AxisParts& parts);
  // For a graph with one axis: the first `count` rows.
  PassResult Evaluate(int64_t count) {
    return Evaluate(
        AxisParts{AxisPart{.first = 0, .count = count, .total = count}});
  }

  // The same again behind the op that made `made`, an output of the evaluation:
  // what was computed up to there is taken from the last Evaluate, which is how
  // a decoder goes on without its encoder. Feeds that are read behind it must
  // be written again. REQUIRES: of what was made up to there, only outputs of
  // the evaluation are read behind it.
  PassResult EvaluateBehind(ValueId made, const AxisParts& parts);

  // The bytes of a value of plan().graph(); meaningful while it lives. Of a
  // sparse one, what is kept now. REQUIRES: that is not in blocks of bytes.
  std::span<std::byte> Bytes(ValueId value);
  // REQUIRES: T (float, int32_t, uint8_t) is how the value is stored.
  template <typename T>
  std::span<T> Elements(ValueId value) {
    CheckStored(value, DTypeOf<T>());
    const std::span<std::byte> bytes = Bytes(value);
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  std::span<float> Floats(ValueId value) { return Elements<float>(value); }

 private:
  struct Impl;
  static ValueId FeedNamed(const Ends& ends, std::string_view name);
  void CheckStored(ValueId value, DType dtype) const;
  bool Makes(uint32_t time, ValueId value) const;
  void CheckKept(uint32_t time) const;
  void InitializePools(uint64_t seed);
  PassResult ResultOf(const Ends& ends);
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace thimble
