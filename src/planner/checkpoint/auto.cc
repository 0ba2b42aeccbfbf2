// SPDX-License-Identifier: Apache-2.0
#include "planner/checkpoint/auto.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "planner/checkpoint/chain.h"
#include "planner/checkpoint/chain_front.h"
#include "planner/checkpoint/checkpoint.h"
#include "planner/checkpoint/edit_runs.h"
#include "planner/checkpoint/exact_front.h"
#include "planner/checkpoint/rewrite.h"
#include "planner/checkpoint/script.h"
#include "planner/checkpoint/script_meter.h"
#include "planner/checkpoint/stage_costs.h"
#include "planner/schedule.h"

namespace thimble::planner {
namespace {

// Of the exact search, which small programs end within milliseconds and large
// ones would not end at all.
constexpr size_t kMaxItems = 20;
constexpr size_t kMaxStates = 400'000;
// Longer chains are merged to this many stages.
constexpr size_t kMaxStages = 64;
// A short chain's fronts are hardly thinned.
constexpr size_t kShortChain = 24;
constexpr size_t kPointsOfShortChain = 256;
constexpr size_t kPointsOfLongChain = 64;
constexpr int64_t kMaxNumberInNames = 4;
// Of networks with thousands of steps, what runs them over and over would take
// longer to plan than it is worth.
constexpr size_t kMaxScript = 20'000;
constexpr size_t kMaxTimesLonger = 2;
// How many candidates with fewer bytes are tried where bytes are left over, and
// the ops of all scripts that are measured for it.
constexpr size_t kNeighbours = 3;
constexpr size_t kMaxMeasured = 2'000'000;

class FrontScript {
 public:
  FrontScript(const Program& program, const Chain& chain,
              const MeasuredChain& measured, const ChainFront& front)
      : chain_(chain),
        measured_(measured),
        front_(front),
        writer_(program, chain) {}

  Script Write(const FrontPoint& point) {
    Emit(0, chain_.stages.size(), point);
    return writer_.Take();
  }

 private:
  void Emit(size_t begin, size_t end, const FrontPoint& point) {
    const Decision& d = point.decision;
    switch (d.kind) {
      case Decision::Kind::kLeaf:
        if (!writer_.HasRun(begin)) writer_.ForwardAndKeep(begin);
        writer_.Backward(begin);
        return;
      case Decision::Kind::kSave:
        writer_.Forward(begin, measured_.saved[begin][d.index]);
        Emit(begin + 1, end, front_.Of(begin + 1, end)[d.first]);
        writer_.Backward(begin);
        return;
      case Decision::Kind::kCut:
        writer_.Advance(begin, d.index);
        Emit(d.index, end, front_.Of(d.index, end)[d.first]);
        Emit(begin, d.index, front_.Of(begin, d.index)[d.second]);
        return;
    }
  }

  const Chain& chain_;
  const MeasuredChain& measured_;
  const ChainFront& front_;
  ScriptWriter writer_;
};

// Indices of those that no other beats, fewest bytes first.
std::vector<size_t> FrontOf(const std::vector<Candidate>& candidates) {
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Candidate& x = candidates[a];
    const Candidate& y = candidates[b];
    return x.most_live != y.most_live ? x.most_live < y.most_live
                                      : x.work < y.work;
  });
  std::vector<size_t> front;
  for (size_t i : order) {
    if (front.empty() || candidates[i].work < candidates[front.back()].work) {
      front.push_back(i);
    }
  }
  return front;
}

}  // namespace

Chooser::Chooser(const Program& program, const PlanOptions& options)
    : program_(program),
      options_(options),
      meter_(program, options),
      shortest_(
          program.phases[static_cast<size_t>(Phase::kMicrobatch)].size()) {
  AddNamed();
  AddFront();
  if (!AddExact()) AddShorter();
  std::stable_sort(candidates_.begin(), candidates_.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return a.work != b.work ? a.work < b.work
                                             : a.most_live < b.most_live;
                   });
}

const Candidate& Chooser::Choose(uint64_t budget) {
  for (Candidate& candidate : candidates_) {
    if (candidate.most_live <= budget && ArenaOf(candidate) <= budget) {
      return candidate;
    }
  }
  return Smallest();
}

LoweredProgram Chooser::Lower(const Candidate& candidate) const {
  LoweredProgram lowered{Rewrite(program_, candidate.script), {}};
  if (candidate.is_placed) lowered.placement = candidate.placement;
  return lowered;
}

void Chooser::Add(Script script) {
  const size_t most = std::max(kMaxScript, kMaxTimesLonger * shortest_);
  if (script.size() > most && !candidates_.empty()) return;
  const ScriptCosts costs = meter_.Measure(script);
  const auto is_same = [&](const Candidate& other) {
    return other.work == costs.flops && other.most_live == costs.most_live &&
           other.script == script;
  };
  if (std::any_of(candidates_.begin(), candidates_.end(), is_same)) return;
  Candidate candidate;
  candidate.work = costs.flops;
  candidate.most_live = costs.most_live;
  candidate.script = std::move(script);
  candidates_.push_back(std::move(candidate));
}

void Chooser::AddNamed() {
  const Chain chain = FindChain(program_);
  Add(ScriptOf(program_, chain, {}, meter_));
  for (const Strategy::Kind kind :
       {Strategy::Kind::kNoBn, Strategy::Kind::kSqrt,
        Strategy::Kind::kRevolve}) {
    Add(ScriptOf(program_, chain, {.kind = kind}, meter_));
  }
  for (int64_t m = 1; m <= kMaxNumberInNames; ++m) {
    using Kind = Strategy::Kind;
    for (const Kind kind : {Kind::kEvery, Kind::kResidual, Kind::kRecursive}) {
      Add(ScriptOf(program_, chain, {.kind = kind, .m = m}, meter_));
    }
    Add(ScriptOf(program_, chain,
                 {.kind = Kind::kResidual, .m = m, .star = true}, meter_));
  }
}

void Chooser::AddFront() {
  const Chain chain = MergeStages(FindChain(program_), kMaxStages);
  const MeasuredChain measured = MeasureChain(program_, chain, options_);
  const ChainFront front(measured.stages, chain.stages.size() <= kShortChain
                                              ? kPointsOfShortChain
                                              : kPointsOfLongChain);
  for (const FrontPoint& point : front.All()) {
    const Script script =
        FrontScript(program_, chain, measured, front).Write(point);
    Add(DelayRuns(program_, meter_, script));
    Add(script);
  }
}

bool Chooser::AddExact() {
  ExactFront front = FindExactFront(program_, meter_, kMaxItems, kMaxStates);
  for (Script& script : front.scripts) Add(std::move(script));
  return front.is_whole;
}

// Bytes that no other candidate has a use for, given to those that take fewer.
void Chooser::AddShorter() {
  const std::vector<size_t> front = FrontOf(candidates_);
  size_t measured = 0;
  for (size_t i = 0; i + 1 < front.size(); ++i) {
    const size_t limit = candidates_[front[i + 1]].most_live - 1;
    for (size_t j = i + 1; j-- > 0 && i - j < kNeighbours;) {
      const Script script = candidates_[front[j]].script;
      const size_t again = script.size() - shortest_;
      measured += again * script.size();
      if (measured > kMaxMeasured) return;
      Add(LeaveOutRuns(program_, meter_, script, limit));
    }
  }
}

size_t Chooser::ArenaOf(Candidate& candidate) {
  if (!candidate.is_placed) {
    candidate.placement =
        PlaceBuffers(Rewrite(program_, candidate.script), options_);
    candidate.is_placed = true;
  }
  return candidate.placement.bytes;
}

// No arena is below what is live in it, so few have to be placed.
const Candidate& Chooser::Smallest() {
  std::vector<Candidate*> by_live;
  for (Candidate& c : candidates_) by_live.push_back(&c);
  std::stable_sort(by_live.begin(), by_live.end(),
                   [](const Candidate* a, const Candidate* b) {
                     return a->most_live < b->most_live;
                   });
  Candidate* best = by_live[0];
  for (Candidate* c : by_live) {
    if (c->most_live >= ArenaOf(*best)) break;
    if (ArenaOf(*c) < ArenaOf(*best)) best = c;
  }
  return *best;
}

LoweredProgram ChooseWithinBudget(const Program& program,
                                  const PlanOptions& options) {
  Chooser chooser(program, options);
  return chooser.Lower(chooser.Choose(
      options.budget.value_or(std::numeric_limits<uint64_t>::max())));
}

}  // namespace thimble::planner
