// SPDX-License-Identifier: Apache-2.0
#include "planner/recompute/chain_front.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include "base/rng.h"

namespace thimble::planner {
namespace {

// The least work within `limit` bytes, by trying every order of steps from
// every set of values: any stage may run forward at any time, keep its input or
// not, save what it likes and drop it again. Knows nothing of cuts.
class Oracle {
 public:
  explicit Oracle(const std::vector<StageCosts>& stages) : stages_(stages) {}

  // −1 where nothing fits.
  int64_t LeastWork(int64_t limit) {
    best_.clear();
    Push({static_cast<int>(stages_.size()) - 1, 1u, Saves(stages_.size())}, 0);
    while (!queue_.empty()) {
      const auto [cost, state] = queue_.top();
      queue_.pop();
      if (best_[state] < cost) continue;
      if (state.next < 0) {
        queue_ = {};
        return cost;
      }
      Step(state, cost, limit);
    }
    return -1;
  }

 private:
  using Saves = std::vector<int>;  // per stage: option whose values are there

  struct State {
    int next;        // the stage whose backward is next
    uint32_t there;  // bit k: the input of stage k
    Saves saves;
    friend bool operator<(const State& a, const State& b) {
      return std::tie(a.next, a.there, a.saves) <
             std::tie(b.next, b.there, b.saves);
    }
  };

  int64_t Held(const State& state, int but) const {
    int64_t bytes = 0;
    for (int k = 0; k < static_cast<int>(stages_.size()); ++k) {
      const StageCosts& s = stages_[static_cast<size_t>(k)];
      if (k != but && ((state.there >> k) & 1) != 0) bytes += s.input;
      bytes += s.options[static_cast<size_t>(SaveOf(state, k))].saved;
    }
    return bytes;
  }
  static int SaveOf(const State& state, int k) {
    return state.saves[static_cast<size_t>(k)];
  }

  void Push(const State& state, int64_t cost) {
    const auto [at, is_new] = best_.insert({state, cost});
    if (!is_new && at->second <= cost) return;
    at->second = cost;
    queue_.push({cost, state});
  }

  void Step(const State& state, int64_t cost, int64_t limit) {
    Drop(state, cost);
    for (int k = 0; k <= state.next; ++k) {
      if (((state.there >> k) & 1) != 0) Forward(state, k, cost, limit);
    }
    if (((state.there >> state.next) & 1) == 0) return;
    const StageCosts& s = stages_[static_cast<size_t>(state.next)];
    State after = state;
    after.saves[static_cast<size_t>(state.next)] = 0;
    const SaveOption& option =
        s.options[static_cast<size_t>(SaveOf(state, state.next))];
    if (Held(after, -1) + option.backward_peak > limit) return;
    after.there &= ~(1u << state.next);
    if (state.next == 0) after.there = 0;
    --after.next;
    Push(after, cost + option.backward_cost);
  }

  void Drop(const State& state, int64_t cost) {
    for (int k = 0; k < static_cast<int>(stages_.size()); ++k) {
      State after = state;
      if (k > 0 && ((state.there >> k) & 1) != 0) {
        after.there &= ~(1u << k);
        Push(after, cost);
      }
      if (SaveOf(state, k) == 0) continue;
      after = state;
      after.saves[static_cast<size_t>(k)] = 0;
      Push(after, cost);
    }
  }

  void Forward(const State& state, int k, int64_t cost, int64_t limit) {
    if (k + 1 >= static_cast<int>(stages_.size()) || k + 1 > state.next) return;
    const StageCosts& s = stages_[static_cast<size_t>(k)];
    const int64_t waiting = stages_[static_cast<size_t>(state.next)].gradient;
    State before = state;
    before.there &= ~(1u << (k + 1));  // is made anew
    before.saves[static_cast<size_t>(k)] = 0;
    State after = before;
    after.there |= 1u << (k + 1);
    for (size_t o = 0; o < s.options.size(); ++o) {
      const int64_t peak = o == 0 ? s.pinned_peak : s.options[o].forward_peak;
      if (Held(before, -1) + waiting + peak > limit) continue;
      after.saves[static_cast<size_t>(k)] = static_cast<int>(o);
      Push(after, cost + s.forward_cost);
    }
    if (k == 0) return;  // the images stay
    after.saves[static_cast<size_t>(k)] = 0;
    if (Held(before, k) + waiting + s.passing_peak > limit) return;
    after.there &= ~(1u << k);
    Push(after, cost + s.forward_cost);
  }

  const std::vector<StageCosts>& stages_;
  std::map<State, int64_t> best_;
  struct Entry {
    int64_t cost;
    State state;
    friend bool operator<(const Entry& a, const Entry& b) {
      return a.cost > b.cost;  // the cheapest on top
    }
  };
  std::priority_queue<Entry> queue_;
};

// Numbers as stages have them: peaks hold what they must.
std::vector<StageCosts> RandomChain(uint64_t seed, size_t stages) {
  const RandomStream random(seed, 0, 0);
  uint32_t next = 0;
  const auto number = [&](int64_t most) {
    const float uniform = random.Uniform(next++);
    return 1 + static_cast<int64_t>(uniform * static_cast<float>(most));
  };
  std::vector<StageCosts> chain(stages);
  for (size_t s = 0; s < stages; ++s) {
    chain[s].input = s == 0 ? 0 : number(8);
    chain[s].forward_cost = number(9);
  }
  for (size_t s = 0; s < stages; ++s) {
    StageCosts& stage = chain[s];
    const int64_t output = s + 1 < stages ? chain[s + 1].input : 0;
    const int64_t inside = number(8);
    stage.gradient = output;
    stage.pinned_peak = output + inside;
    // In place where sizes allow it.
    stage.passing_peak = std::max(stage.input, output) + inside;
    const int64_t backward = output + stage.input + inside;
    stage.options.push_back(
        {0, stage.pinned_peak, backward, stage.forward_cost});
    stage.options.push_back({inside, output + inside, backward, 0});
  }
  return chain;
}

std::string Text(const std::vector<StageCosts>& chain) {
  std::string text;
  for (const StageCosts& s : chain) {
    text += "in " + std::to_string(s.input) + " save " +
            std::to_string(s.options[1].saved) + " cost " +
            std::to_string(s.forward_cost) + "; ";
  }
  return text;
}

TEST(ChainFront, MeetsAnExhaustiveSearchAtBothEnds) {
  int compared = 0;
  int equal = 0;
  double worst = 1;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::vector<StageCosts> chain = RandomChain(seed, 2 + seed % 4);
    SCOPED_TRACE(Text(chain));
    const ChainFront front(chain, Insides::kAlone, 1000);
    Oracle oracle(chain);
    for (const FrontPoint& point : front.All()) {
      const int64_t least = oracle.LeastWork(point.bytes);
      ASSERT_GE(least, 0);
      ASSERT_LE(least, point.cost);
      ++compared;
      equal += least == point.cost;
      worst = std::max(
          worst, static_cast<double>(point.cost) / static_cast<double>(least));
    }
    // Both ends are exact: nothing fits in less, nothing takes less work.
    EXPECT_EQ(oracle.LeastWork(front.All().front().bytes - 1), -1);
    EXPECT_EQ(oracle.LeastWork(INT64_MAX / 2), front.All().back().cost);
  }
  RecordProperty("compared", compared);
  RecordProperty("equal", equal);
  RecordProperty("worst", std::to_string(worst));
  // In between, the search also drops values before their backward has run.
  // Programs of this size are left to an exact search (exact_front.h); most
  // points agree anyway.
  EXPECT_GT(equal * 10, compared * 9);
}

TEST(ChainFront, FallsInWorkAsItRisesInBytes) {
  const std::vector<StageCosts> chain = RandomChain(7, 20);
  const ChainFront front(chain, Insides::kAlone, 30);
  const std::vector<FrontPoint>& all = front.All();
  ASSERT_GT(all.size(), 3u);
  EXPECT_LE(all.size(), 30u);
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_LT(all[i - 1].bytes, all[i].bytes);
    EXPECT_GT(all[i - 1].cost, all[i].cost);
  }
  // Nothing twice: every stage forward once.
  int64_t once = 0;
  for (const StageCosts& s : chain) once += s.forward_cost;
  EXPECT_EQ(all.back().cost, once);
}

}  // namespace
}  // namespace thimble::planner
