// SPDX-License-Identifier: Apache-2.0
//
// The rule that says how long bytes are needed and when they may be
// overwritten. Whoever counts live bytes uses it: the buffers of a plan, and
// the three meters that recomputation is chosen by (recompute/).
//
// A value is needed from the op that makes it to the op that reads it last. An
// exception is what outlasts its readers or comes before its maker
// (LastingValues). An op may write an output over an input that nobody reads
// later, where the op itself allows it (OpDef::InPlace) and both have the same
// number of bytes.
//
// Example: b = relu(a), c = conv(b), and nobody reads a after the ReLU. Then b
// takes a's bytes, and at most two of the three are live at one time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/op.h"
#include "planner/program.h"
#include "thimble/plan.h"

namespace thimble::planner {

// Parameters, running statistics, optimizer state: what the next step finds.
bool IsState(const Value& value);

// What is needed for longer than ops read it. One entry per value of the
// program's graph.
struct LastingValues {
  // Lives throughout.
  std::vector<bool> state;
  // Lives from the first op on: what several microbatches add to.
  std::vector<bool> carried;
  // Read behind the microbatch phase, by the update or by the host.
  std::vector<bool> read_later;
  // Of training: what the host puts there before the first op, and what it
  // reads behind the update.
  std::vector<ValueId> fed, told;
};

LastingValues FindLasting(const Program& program);

// Whether an op with these inputs may use one of its in-place pairs: not where
// it reads the same bytes as another input too, unless it may overwrite that as
// well. (A convolution may be added to a residual in place, but not to its own
// input.)
bool MayOverwrite(std::span<const ValueId> inputs,
                  std::span<const InPlacePair> pairs, const InPlacePair& pair);

// Chooses for each output of an op the input that it is written over, and calls
// take(pair). is_free(pair) says whether nobody reads the input later; of
// several such inputs the first one is taken that no other is_better(a, b)
// than. An input is taken once.
template <typename IsFree, typename IsBetter, typename Take>
void ChooseOverwritten(std::span<const InPlacePair> pairs,
                       const IsFree& is_free, const IsBetter& is_better,
                       const Take& take) {
  uint32_t outputs = 0;
  for (const InPlacePair& pair : pairs) outputs |= 1u << pair.output;
  uint32_t taken = 0;  // inputs
  for (uint32_t out = 0; (outputs >> out) != 0; ++out) {
    const InPlacePair* best = nullptr;
    for (const InPlacePair& pair : pairs) {
      if (pair.output != out || ((taken >> pair.input) & 1) != 0) continue;
      if (!is_free(pair)) continue;
      if (best == nullptr || is_better(pair, *best)) best = &pair;
    }
    if (best == nullptr) continue;
    taken |= 1u << best->input;
    take(*best);
  }
}

// Where only bytes are counted, any free input is as good as another.
template <typename IsFree, typename Take>
void ChooseOverwritten(std::span<const InPlacePair> pairs,
                       const IsFree& is_free, const Take& take) {
  ChooseOverwritten(
      pairs, is_free,
      [](const InPlacePair&, const InPlacePair&) { return false; }, take);
}

// Bytes that are live at each time: differences in time, then their sums. The
// one sweep for all who count them. It counts values too, each as one byte.
class LiveBytesOverTime {
 public:
  explicit LiveBytesOverTime(size_t times) : change_(times + 1) {}

  // As a new one, in the same memory.
  void Reset(size_t times) { change_.assign(times + 1, 0); }

  // REQUIRES: live.begin <= live.end <= times.
  void Add(const Interval& live, size_t bytes) {
    change_[live.begin] += static_cast<int64_t>(bytes);
    change_[live.end] -= static_cast<int64_t>(bytes);
  }

  // One per time.
  std::vector<size_t> Sum() const;
  // The most of them; 0 if there are no times.
  size_t Most() const;

 private:
  std::vector<int64_t> change_;
};

}  // namespace thimble::planner
