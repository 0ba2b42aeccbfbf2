// SPDX-License-Identifier: Apache-2.0
#include "planner/checkpoint/auto.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/check.h"
#include "planner/checkpoint/chain.h"
#include "planner/checkpoint/chain_front.h"
#include "planner/checkpoint/checkpoint.h"
#include "planner/checkpoint/rewrite.h"
#include "planner/checkpoint/script.h"
#include "planner/checkpoint/stage_costs.h"
#include "planner/checkpoint/two_pass_costs.h"
#include "planner/schedule.h"
#include "planner/two_pass.h"

namespace thimble::planner {
namespace {

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

// A way to recompute, and what is known of it.
struct Candidate {
  Script script;
  // In two passes, as ops of the program that the script stands for.
  std::vector<TwoPassPair> two_pass;
  int64_t work = 0;
  size_t most_live = 0;
  bool is_placed = false;
  Placement placement;
};

class Chooser {
 public:
  Chooser(const Program& program, const PlanOptions& options)
      : program_(program),
        options_(options),
        chain_(MergeStages(FindChain(program), kMaxStages)) {
    AddNamed();
    AddFront(MeasureChain(program_, chain_, options_));
    if (options_.two_pass) AddTwoPass();
    // The least work first; of equals, the fewest bytes.
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) {
                       return a.work != b.work ? a.work < b.work
                                               : a.most_live < b.most_live;
                     });
  }

  LoweredProgram Choose() {
    const uint64_t budget =
        options_.budget.value_or(std::numeric_limits<uint64_t>::max());
    for (Candidate& candidate : candidates_) {
      if (candidate.most_live <= budget && ArenaOf(candidate) <= budget) {
        return Lower(candidate);
      }
    }
    return Lower(Smallest());
  }

 private:
  Program Written(const Candidate& candidate) const {
    Program program = Rewrite(program_, candidate.script);
    if (candidate.two_pass.empty()) return program;
    return InTwoPasses(program, candidate.two_pass);
  }

  LoweredProgram Lower(const Candidate& candidate) const {
    LoweredProgram lowered{Written(candidate), {}};
    if (candidate.is_placed) lowered.placement = candidate.placement;
    return lowered;
  }

  void Add(Script script) {
    if (script.size() > kMaxScript && !candidates_.empty()) return;
    if (!seen_.insert(Key(script)).second) return;
    const Program rewritten = Rewrite(program_, script);
    Candidate candidate;
    candidate.work = CountFlops(rewritten.graph, MakeSchedule(rewritten)).step;
    candidate.most_live = MostLiveBytes(rewritten, options_);
    candidate.script = std::move(script);
    candidates_.push_back(std::move(candidate));
  }

  static std::vector<uint32_t> Key(const Script& script) {
    std::vector<uint32_t> key;
    key.reserve(script.size());
    for (OpId op : script) key.push_back(op.i);
    return key;
  }

  void AddNamed() {
    const Chain chain = FindChain(program_);
    Add(ScriptOf(program_, chain, {}, options_));
    for (const Strategy::Kind kind :
         {Strategy::Kind::kNoBn, Strategy::Kind::kSqrt,
          Strategy::Kind::kRevolve}) {
      Add(ScriptOf(program_, chain, {.kind = kind}, options_));
    }
    for (int64_t m = 1; m <= kMaxNumberInNames; ++m) {
      using Kind = Strategy::Kind;
      for (const Kind kind :
           {Kind::kEvery, Kind::kResidual, Kind::kRecursive}) {
        Add(ScriptOf(program_, chain, {.kind = kind, .m = m}, options_));
      }
      Add(ScriptOf(program_, chain,
                   {.kind = Kind::kResidual, .m = m, .star = true}, options_));
    }
  }

  void AddFront(const MeasuredChain& measured) {
    const ChainFront front(measured.stages, chain_.stages.size() <= kShortChain
                                                ? kPointsOfShortChain
                                                : kPointsOfLongChain);
    for (const FrontPoint& point : front.All()) {
      Add(FrontScript(program_, chain_, measured, front).Write(point));
    }
  }

  // All scripts with gradients in two passes, and those on the front of stages
  // that know of them.
  void AddTwoPass() {
    if (FindTwoPassPairs(program_).empty()) return;
    AddFront(MeasureChainInTwoPasses(program_, chain_, options_));
    const size_t scripts = candidates_.size();
    for (size_t i = 0; i < scripts; ++i) {
      const Program rewritten = Rewrite(program_, candidates_[i].script);
      for (TwoPassChoice& choice : FindTwoPassChoices(rewritten, options_)) {
        Candidate candidate;
        candidate.script = candidates_[i].script;
        candidate.two_pass = std::move(choice.pairs);
        candidate.work = choice.work;
        candidate.most_live = choice.most_live;
        candidates_.push_back(std::move(candidate));
      }
    }
  }

  size_t ArenaOf(Candidate& candidate) {
    if (!candidate.is_placed) {
      candidate.placement = PlaceBuffers(Written(candidate), options_);
      candidate.is_placed = true;
    }
    return candidate.placement.bytes;
  }

  // No arena is below what is live in it, so few have to be placed.
  Candidate& Smallest() {
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

  const Program& program_;
  const PlanOptions& options_;
  Chain chain_;  // of a bounded number of stages
  std::vector<Candidate> candidates_;
  std::set<std::vector<uint32_t>> seen_;
};

}  // namespace

LoweredProgram ChooseWithinBudget(const Program& program,
                                  const PlanOptions& options) {
  return Chooser(program, options).Choose();
}

}  // namespace thimble::planner
