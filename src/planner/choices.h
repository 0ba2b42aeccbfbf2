// SPDX-License-Identifier: Apache-2.0
//
// All that one planning call builds, each once: a program per way of storing
// tensors and microbatch size, and what can be chosen from for it. The plan,
// its trade-offs and what a refusal tells are read from here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/program.h"
#include "planner/recompute/auto.h"
#include "thimble/graph.h"
#include "thimble/plan.h"

namespace thimble::planner {

// Of one program: all ways to recompute, or a named strategy as the only one.
// Each is a number from 0, as in Alternatives.
class SizeChoice {
 public:
  explicit SizeChoice(Alternatives& all) : all_(&all) {}
  explicit SizeChoice(LoweredProgram only)
      : only_(std::move(only)), only_bytes_(only_->placement.bytes) {}

  // The least work in an arena of at most `budget` bytes.
  std::optional<size_t> LeastWorkWithin(uint64_t budget);
  // The smallest arena of those below `limit` bytes.
  std::optional<size_t> FewestBytesBelow(uint64_t limit);
  size_t ArenaOf(size_t index);
  // See step_cost.h. REQUIRES: nothing was given away.
  int64_t CostOf(size_t index, TargetClass target);
  // REQUIRES: a named strategy's is asked for once: it is given away.
  LoweredProgram Lower(size_t index);

 private:
  Alternatives* all_ = nullptr;
  std::optional<LoweredProgram> only_;
  size_t only_bytes_ = 0;
};

// What a refusal may change of the options.
struct Setting {
  int threads = 1;
  // With every way to recompute, whatever strategy the options name.
  bool is_auto = false;
  size_t storage = 0;  // of Choices::StorageAt
  friend bool operator<(const Setting& a, const Setting& b) {
    return std::tie(a.threads, a.is_auto, a.storage) <
           std::tie(b.threads, b.is_auto, b.storage);
  }
};

// How tensors may be stored: their types, and how many weights.
struct StorageChoice {
  PrecisionChoice types;
  SparseWeights sparse;
};

// Belongs to one thread at a time.
class Choices {
 public:
  // REQUIRES: the options are possible.
  Choices(Model model, PlanOptions options);
  Choices(const Choices&) = delete;
  Choices& operator=(const Choices&) = delete;

  const Model& model() const { return model_; }
  const PlanOptions& options() const { return options_; }
  // As the options have it, stored as they say.
  Setting setting() const;
  // The options with the setting's threads and storage.
  PlanOptions OptionsOf(const Setting& setting) const;

  // The number by which settings name a way to store; the options' own is 0.
  size_t StorageAt(StorageChoice choice);

  // REQUIRES, here and below: `microbatch` divides the model's batch.
  const Program& ProgramOf(size_t storage, int64_t microbatch);
  // REQUIRES: options().training.
  Alternatives& AlternativesOf(const Setting& setting, int64_t microbatch);
  SizeChoice& Of(const Setting& setting, int64_t microbatch);

  // How many were built so far, for tests.
  size_t programs_built() const { return programs_built_; }
  size_t alternatives_built() const { return alternatives_built_; }

 private:
  Model model_;
  PlanOptions options_;
  std::vector<StorageChoice> storages_;
  // A program does not depend on the number of threads.
  std::map<std::pair<size_t, int64_t>, Program> programs_;
  std::map<std::tuple<int, size_t, int64_t>, Alternatives> alternatives_;
  std::map<std::pair<Setting, int64_t>, SizeChoice> choices_;
  size_t programs_built_ = 0;
  size_t alternatives_built_ = 0;
};

}  // namespace thimble::planner
