// SPDX-License-Identifier: Apache-2.0
//
// Session: a Plan with memory. It takes one arena of exactly the planned size
// and a thread pool, and runs the plan's phases in them; after Create nothing
// allocates. One thread at a time may use a session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "thimble/plan.h"
#include "thimble/status.h"

namespace thimble {

struct SessionOptions {
  // Debugging: fill every buffer with NaNs as soon as its life ends. Results
  // must not change.
  bool poison = false;
};

// What a pass over one microbatch says.
struct BatchResult {
  float loss = 0.0f;    // mean over its rows
  int64_t correct = 0;  // rows classified right
};

// A part of a step: rows [first, first + count) of `images`.
struct Microbatch {
  int64_t first = 0;
  int64_t count = 0;
  int64_t images = 0;
};

// What became of a step at its update.
enum class StepOutcome {
  kApplied,
  kSkipped,  // the state is as it was; only the step's number has gone on
};

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
  // The SIMD target in use ("avx2"); bits are promised per target.
  std::string_view target() const;

  // Sets parameters and statistics to their initial values (a function of the
  // seed and the parameter's position alone) and the optimizer's state to zero,
  // and begins the run of that seed: GoOnAfter(seed, 0).
  void Initialize(uint64_t seed);
  // The next step is the one after `steps` steps of the run with this seed, on
  // which dropouts depend. Update counts on by itself: only who restores a
  // state needs this.
  void GoOnAfter(uint64_t seed, uint64_t steps);

  // Where the caller puts a microbatch before Differentiate or Evaluate: images
  // row by row, and labels in [0, classes).
  std::span<uint8_t> train_images();
  std::span<int32_t> train_labels();
  std::span<uint8_t> evaluate_images();
  std::span<int32_t> evaluate_labels();

  // Forward and backward on the rows that were put there. The part that is
  // first in its step overwrites the gradients, the others add to them; after
  // the last one they are those of the mean loss over the step's images, until
  // Update, if nothing else is run or written in between but the images and
  // labels of the next part. REQUIRES: 1 <= part.count <= plan().microbatch(),
  // parts in order, and several of them only where plan().microbatches() > 1.
  BatchResult Differentiate(const Microbatch& part);
  // A step of one part: the first `count` rows.
  BatchResult Differentiate(int64_t count) {
    return Differentiate({.first = 0, .count = count, .images = count});
  }
  // Applies the gradients and commits running statistics, or does neither.
  StepOutcome Update(float learning_rate);
  // Both, for a step of one part.
  BatchResult TrainStep(int64_t count, float learning_rate);
  // Forward with running statistics. REQUIRES: 1 <= count <=
  // plan().microbatch().
  BatchResult Evaluate(int64_t count);

  // The bytes of a value of plan().graph(); meaningful while it lives.
  std::span<std::byte> Bytes(ValueId value);
  // REQUIRES: the value is f32.
  std::span<float> Floats(ValueId value);

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace thimble
