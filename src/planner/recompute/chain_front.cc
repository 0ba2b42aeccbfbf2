// SPDX-License-Identifier: Apache-2.0
#include "planner/recompute/chain_front.h"

#include <algorithm>

namespace thimble::planner {
namespace {

using Front = std::vector<FrontPoint>;

// Keeps those points that no other beats, fewest bytes first.
void KeepBest(Front& points) {
  std::stable_sort(points.begin(), points.end(),
                   [](const FrontPoint& a, const FrontPoint& b) {
                     return a.bytes != b.bytes ? a.bytes < b.bytes
                                               : a.cost < b.cost;
                   });
  size_t kept = 0;
  for (const FrontPoint& point : points) {
    if (kept > 0 && point.cost >= points[kept - 1].cost) continue;
    points[kept++] = point;
  }
  points.resize(kept);
}

// Leaves both ends, the cheapest of each of equal ranges of bytes, and the
// smallest of each of equal ranges of work: few bytes cost much more work, much
// less work takes many more bytes.
void Thin(size_t max_points, Front& points) {
  if (points.size() <= max_points) return;
  const auto ranges = static_cast<int64_t>(max_points / 2) - 1;
  const FrontPoint least = points.front();
  const int64_t bytes = points.back().bytes - least.bytes + 1;
  const int64_t work = least.cost - points.back().cost + 1;
  const auto bytes_range = [&](size_t i) {
    return (points[i].bytes - least.bytes) * ranges / bytes;
  };
  const auto work_range = [&](size_t i) {
    return (least.cost - points[i].cost) / ((work + ranges - 1) / ranges);
  };
  Front kept;
  for (size_t i = 0; i < points.size(); ++i) {
    const bool is_end = i == 0 || i + 1 == points.size();
    if (is_end || bytes_range(i + 1) != bytes_range(i) ||
        work_range(i - 1) != work_range(i)) {
      kept.push_back(points[i]);
    }
  }
  points = std::move(kept);
}

// Both runs, one after the other: for each number of bytes the cheapest of
// either. `held` is kept while the first runs; `floor` is needed before.
void AddPairs(const Front& first, int64_t held, const Front& second,
              int64_t floor, int64_t cost, Decision decision, Front& points) {
  if (first.empty() || second.empty()) return;
  size_t a = 0;
  size_t b = 0;
  while (true) {
    const int64_t of_a = first[a].bytes + held;
    const int64_t of_b = second[b].bytes;
    decision.first = static_cast<uint32_t>(a);
    decision.second = static_cast<uint32_t>(b);
    points.push_back({std::max({floor, of_a, of_b}),
                      cost + first[a].cost + second[b].cost, decision});
    // Only more bytes for the one that takes fewer can be of use.
    const bool more_a = a + 1 < first.size();
    const bool more_b = b + 1 < second.size();
    if (!more_a && !more_b) return;
    const int64_t next_a = more_a ? first[a + 1].bytes + held : INT64_MAX;
    const int64_t next_b = more_b ? second[b + 1].bytes : INT64_MAX;
    if (next_a <= next_b) ++a;
    if (next_b <= next_a) ++b;
  }
}

}  // namespace

ChainFront::ChainFront(const std::vector<StageCosts>& stages, Insides insides,
                       size_t max_points)
    : stages_(stages), insides_(insides), max_points_(max_points) {
  first_option_.push_back(0);
  for (const StageCosts& stage : stages) {
    first_option_.push_back(first_option_.back() + stage.options.size());
  }
  fronts_.resize(stages.size() * first_option_.back());
  for (size_t s = 0; s < stages.size(); ++s) {
    for (size_t o = 0; o < stages[s].options.size(); ++o) SolveLeaf(s, o);
  }
  for (size_t length = 2; length <= stages.size(); ++length) {
    for (size_t begin = 0; begin + length <= stages.size(); ++begin) {
      const size_t end = begin + length;
      Solve(begin, end, 0);
      if (insides == Insides::kWithInput) continue;
      for (size_t o = 1; o < stages[end - 1].options.size(); ++o) {
        if (stages[end - 1].options[o].saved > 0) Solve(begin, end, o);
      }
    }
  }
}

void ChainFront::SolveLeaf(size_t stage, size_t option) {
  Front& points = fronts_[IndexOf(stage, stage + 1, option)];
  const auto add = [&](const SaveOption& o) {
    points.push_back({o.backward_peak, o.backward_cost, {}});
  };
  if (option > 0) return add(stages_[stage].options[option]);
  for (const SaveOption& o : stages_[stage].options) {
    if (o.saved == 0) add(o);
  }
  KeepBest(points);
}

void ChainFront::Solve(size_t begin, size_t end, size_t option) {
  Front& points = fronts_[IndexOf(begin, end, option)];
  int64_t peak = 0;
  int64_t cost = 0;
  for (size_t cut = begin + 1; cut < end; ++cut) {
    const StageCosts& last = stages_[cut - 1];
    cost += last.forward_cost;
    AddCuts(begin, end, option, cut, peak, cost, points);
    peak =
        std::max(peak, cut == begin + 1 ? last.pinned_peak : last.passing_peak);
  }
  KeepBest(points);
  Thin(max_points_, points);
}

// Forward up to stage `cut` takes `cost`, and `peak` up to the stage before it.
void ChainFront::AddCuts(size_t begin, size_t end, size_t option, size_t cut,
                         int64_t peak, int64_t cost, Front& points) {
  const StageCosts& last = stages_[cut - 1];
  const bool is_input = cut == begin + 1;  // of the run: it stays
  const int64_t waiting =
      stages_[end - 1].gradient + stages_[end - 1].options[option].saved;
  for (uint32_t o = 0; o < last.options.size(); ++o) {
    const SaveOption& save = last.options[o];
    if (o > 0 &&
        (save.saved == 0 || (!is_input && insides_ == Insides::kWithInput))) {
      continue;
    }
    int64_t here = save.forward_peak;
    if (!is_input) here = o == 0 ? last.passing_peak : here + last.input;
    AddPairs(Of(cut, end, option), stages_[cut].input + save.saved,
             Of(begin, cut, o), std::max(peak, here) + waiting, cost,
             {Decision::Kind::kCut, static_cast<uint32_t>(cut), o, 0, 0},
             points);
  }
}

}  // namespace thimble::planner
