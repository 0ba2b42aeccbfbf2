// SPDX-License-Identifier: Apache-2.0
#include "planner/checkpoint/chain_front.h"

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
              int64_t floor, int64_t cost, uint32_t index, Front& points) {
  if (first.empty() || second.empty()) return;
  size_t a = 0;
  size_t b = 0;
  while (true) {
    const int64_t of_a = first[a].bytes + held;
    const int64_t of_b = second[b].bytes;
    points.push_back({std::max({floor, of_a, of_b}),
                      cost + first[a].cost + second[b].cost,
                      {Decision::Kind::kCut, index, static_cast<uint32_t>(a),
                       static_cast<uint32_t>(b)}});
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

ChainFront::ChainFront(const std::vector<StageCosts>& stages, size_t max_points)
    : count_(stages.size()), max_points_(max_points) {
  fronts_.resize(count_ * (count_ + 1) + 1);
  for (size_t length = 1; length <= count_; ++length) {
    for (size_t begin = 0; begin + length <= count_; ++begin) {
      Solve(stages, begin, begin + length);
    }
  }
}

void ChainFront::Solve(const std::vector<StageCosts>& stages, size_t begin,
                       size_t end) {
  Front& points = fronts_[begin * (count_ + 1) + end];
  const StageCosts& first = stages[begin];
  if (end - begin == 1) {
    for (const SaveOption& option : first.options) {
      if (option.saved > 0) continue;
      points.push_back({option.backward_peak, option.backward_cost, {}});
    }
    KeepBest(points);
    return;
  }
  const int64_t waiting = stages[end - 1].gradient;
  for (uint32_t o = 0; o < first.options.size(); ++o) {
    const SaveOption& option = first.options[o];
    const int64_t held = option.saved + stages[begin + 1].input;
    const int64_t floor =
        std::max(option.forward_peak + waiting, option.backward_peak);
    const Front& rest = Of(begin + 1, end);
    for (uint32_t p = 0; p < rest.size(); ++p) {
      points.push_back(
          {std::max(floor, held + rest[p].bytes),
           first.forward_cost + rest[p].cost + option.backward_cost,
           {Decision::Kind::kSave, o, p, 0}});
    }
  }
  int64_t peak = first.pinned_peak;
  int64_t cost = first.forward_cost;
  for (size_t cut = begin + 1; cut < end; ++cut) {
    AddPairs(Of(cut, end), stages[cut].input, Of(begin, cut), peak + waiting,
             cost, static_cast<uint32_t>(cut), points);
    peak = std::max(peak, stages[cut].passing_peak);
    cost += stages[cut].forward_cost;
  }
  KeepBest(points);
  Thin(max_points_, points);
}

}  // namespace thimble::planner
