// SPDX-License-Identifier: Apache-2.0
#include "planner/recompute/auto.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "planner/recompute/chain.h"
#include "planner/recompute/chain_front.h"
#include "planner/recompute/edit_runs.h"
#include "planner/recompute/exact_front.h"
#include "planner/recompute/rewrite.h"
#include "planner/recompute/script.h"
#include "planner/recompute/script_meter.h"
#include "planner/recompute/stage_costs.h"
#include "planner/recompute/strategy.h"
#include "planner/recompute/strategy_script.h"
#include "planner/recompute/two_pass_costs.h"
#include "planner/two_pass.h"

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
constexpr int kMaxNumberInNames = 4;
// With few slots, revolve writes scripts that grow with the square of a chain.
constexpr int kMaxSlots = 16;
constexpr size_t kMaxStagesForSlots = 2'000;
// Of networks with thousands of steps, what runs them over and over would take
// longer to plan than it is worth.
constexpr size_t kMaxScript = 40'000;
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
  void Emit(size_t begin, size_t end, const FrontPoint& point,
            size_t option = 0) {
    const Decision& d = point.decision;
    if (d.kind == Decision::Kind::kLeaf) {
      if (!writer_.HasRun(begin)) writer_.ForwardAndKeep(begin);
      writer_.Backward(begin);
      return;
    }
    writer_.Advance(begin, d.index, measured_.saved[d.index - 1][d.option]);
    Emit(d.index, end, front_.Of(d.index, end, option)[d.first], option);
    Emit(begin, d.index, front_.Of(begin, d.index, d.option)[d.second],
         d.option);
  }

  const Chain& chain_;
  const MeasuredChain& measured_;
  const ChainFront& front_;
  ScriptWriter writer_;
};

}  // namespace

class Alternatives::Chooser {
 public:
  Chooser(const Program& program, const PlanOptions& options)
      : program_(program),
        options_(options),
        meter_(program, options),
        shortest_(
            program.phases[static_cast<size_t>(Phase::kMicrobatch)].size()),
        chain_(MergeStages(FindChain(program), kMaxStages)) {
    AddNamed();
    AddFront(MeasureChain(program_, chain_, options_));
    if (!AddExact()) AddShorter();
    if (options_.two_pass) AddTwoPass();
    // The least work first; of equals, the fewest bytes.
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const Candidate& a, const Candidate& b) {
                       return a.work != b.work ? a.work < b.work
                                               : a.most_live < b.most_live;
                     });
  }

  std::optional<size_t> LeastWorkWithin(uint64_t budget) {
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (candidates_[i].most_live <= budget && ArenaOf(i) <= budget) return i;
    }
    return std::nullopt;
  }

  // No arena is below what is live in it, so few have to be placed.
  std::optional<size_t> FewestBytesBelow(uint64_t limit, int64_t flops) {
    std::vector<size_t> by_live(candidates_.size());
    std::iota(by_live.begin(), by_live.end(), size_t{0});
    std::stable_sort(by_live.begin(), by_live.end(), [&](size_t a, size_t b) {
      return candidates_[a].most_live < candidates_[b].most_live;
    });
    std::optional<size_t> best;
    for (size_t i : by_live) {
      if (candidates_[i].most_live >= limit) break;
      if (candidates_[i].work > flops || ArenaOf(i) >= limit) continue;
      best = i;
      limit = ArenaOf(i);
    }
    return best;
  }

  size_t ArenaOf(size_t index) {
    Candidate& candidate = candidates_[index];
    if (!candidate.placement.has_value()) {
      candidate.placement = PlaceBuffers(Written(candidate), options_);
    }
    return candidate.placement->bytes;
  }

  size_t size() const { return candidates_.size(); }
  size_t LiveBytesOf(size_t index) const {
    return candidates_[index].most_live;
  }
  int64_t FlopsOf(size_t index) const { return candidates_[index].work; }

  const std::string& NameOf(size_t index) const {
    return candidates_[index].name;
  }

  LoweredProgram Lower(size_t index) {
    ArenaOf(index);
    const Candidate& candidate = candidates_[index];
    return {Written(candidate), *candidate.placement};
  }

 private:
  // A way to recompute, and what is known of it.
  struct Candidate {
    Script script;
    // In two passes, as ops of the program that the script stands for.
    std::vector<TwoPassPair> two_pass;
    std::string name = "auto";  // or the strategy that does the same
    int64_t work = 0;
    size_t most_live = 0;
    // Takes most of the time of planning.
    std::optional<PlacedBuffers> placement;
  };

  Program Written(const Candidate& candidate) const {
    Program program = Rewrite(program_, candidate.script);
    if (candidate.two_pass.empty()) return program;
    return InTwoPasses(program, candidate.two_pass);
  }

  void Add(Script script, std::string name = "auto") {
    const size_t most = std::max(kMaxScript, kMaxTimesLonger * shortest_);
    if (script.size() > most && !candidates_.empty()) return;
    const ScriptCosts costs = meter_.Measure(script);
    const auto is_same = [&](const Candidate& other) {
      return other.work == costs.flops && other.most_live == costs.most_live &&
             other.script == script;
    };
    if (std::any_of(candidates_.begin(), candidates_.end(), is_same)) return;
    Candidate candidate;
    candidate.name = std::move(name);
    candidate.work = costs.flops;
    candidate.most_live = costs.most_live;
    candidate.script = std::move(script);
    candidates_.push_back(std::move(candidate));
  }

  void AddNamed() {
    const Chain chain = FindChain(program_);
    std::vector<std::string> names = {"none", "no-bn", "sqrt", "revolve"};
    for (int m = 1; m <= kMaxNumberInNames; ++m) {
      const std::string number = std::to_string(m);
      names.insert(names.end(),
                   {"every-" + number, "residual-" + number,
                    "recursive-" + number, "residual-" + number + "*"});
    }
    const bool is_short = chain.stages.size() <= kMaxStagesForSlots;
    for (int s = 1; is_short && s <= kMaxSlots; ++s) {
      names.push_back("revolve-" + std::to_string(s));
    }
    for (const std::string& name : names) {
      Add(ScriptOf(program_, chain, *ParseStrategy(name), meter_), name);
    }
  }

  void AddFront(const MeasuredChain& measured) {
    const bool is_short = chain_.stages.size() <= kShortChain;
    const ChainFront front(measured.stages,
                           is_short ? Insides::kAlone : Insides::kWithInput,
                           is_short ? kPointsOfShortChain : kPointsOfLongChain);
    for (const FrontPoint& point : front.All()) {
      const Script script =
          FrontScript(program_, chain_, measured, front).Write(point);
      Add(DelayRuns(program_, meter_, script));
      Add(script);
    }
  }

  // Whether that is all there is.
  bool AddExact() {
    ExactFront front = FindExactFront(program_, meter_, kMaxItems, kMaxStates);
    for (Script& script : front.scripts) Add(std::move(script));
    return front.is_whole;
  }

  // Indices of those that no other beats, fewest bytes first.
  std::vector<size_t> Front() const {
    std::vector<size_t> order(candidates_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const Candidate& x = candidates_[a];
      const Candidate& y = candidates_[b];
      return x.most_live != y.most_live ? x.most_live < y.most_live
                                        : x.work < y.work;
    });
    std::vector<size_t> front;
    for (size_t i : order) {
      if (front.empty() ||
          candidates_[i].work < candidates_[front.back()].work) {
        front.push_back(i);
      }
    }
    return front;
  }

  // Bytes that no other candidate has a use for, given to those that take
  // fewer.
  void AddShorter() {
    const std::vector<size_t> front = Front();
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

  // All scripts with gradients in two passes, and those on the front of stages
  // that know of them.
  void AddTwoPass() {
    if (FindTwoPassPairs(program_).empty()) return;
    AddFront(MeasureChainInTwoPasses(program_, chain_, options_));
    const size_t scripts = candidates_.size();
    for (size_t i = 0; i < scripts; ++i) {
      const Program rewritten = Rewrite(program_, candidates_[i].script);
      std::vector<TwoPassChoice> choices =
          FindTwoPassChoices(rewritten, options_);
      for (TwoPassChoice& choice : choices) {
        Candidate candidate;
        candidate.script = candidates_[i].script;
        candidate.two_pass = std::move(choice.pairs);
        candidate.work = choice.work;
        candidate.most_live = choice.most_live;
        candidates_.push_back(std::move(candidate));
      }
      // Under its name, a strategy goes all the way.
      if (!choices.empty()) {
        std::swap(candidates_[i].name, candidates_.back().name);
      }
    }
  }

  const Program& program_;
  const PlanOptions& options_;
  ScriptMeter meter_;
  size_t shortest_;  // ops of a script in which nothing runs again
  Chain chain_;      // of a bounded number of stages
  std::vector<Candidate> candidates_;
};

Alternatives::Alternatives(const Program& program, const PlanOptions& options)
    : options_(options),
      chooser_(std::make_unique<Chooser>(program, options_)) {}

Alternatives::~Alternatives() = default;

std::optional<size_t> Alternatives::LeastWorkWithin(uint64_t budget) {
  return chooser_->LeastWorkWithin(budget);
}

std::optional<size_t> Alternatives::FewestBytesBelow(uint64_t limit,
                                                     int64_t flops) {
  return chooser_->FewestBytesBelow(limit, flops);
}

size_t Alternatives::ArenaOf(size_t index) { return chooser_->ArenaOf(index); }

size_t Alternatives::size() const { return chooser_->size(); }

size_t Alternatives::LiveBytesOf(size_t index) const {
  return chooser_->LiveBytesOf(index);
}

int64_t Alternatives::FlopsOf(size_t index) const {
  return chooser_->FlopsOf(index);
}

const std::string& Alternatives::NameOf(size_t index) const {
  return chooser_->NameOf(index);
}

LoweredProgram Alternatives::Lower(size_t index) {
  return chooser_->Lower(index);
}

}  // namespace thimble::planner
