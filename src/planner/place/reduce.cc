// SPDX-License-Identifier: Apache-2.0
#include "planner/place/reduce.h"

#include <algorithm>
#include <numeric>

namespace thimble::planner {
namespace {

// Indices of `requests` by what `key` says of their lives, ascending.
template <typename F>
std::vector<uint32_t> SortedBy(std::span<const BufferRequest> requests,
                               const F& key) {
  std::vector<uint32_t> order(requests.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return key(requests[a].live) < key(requests[b].live);
  });
  return order;
}

// Renumbers time so that only the largest sets of live buffers are left: one
// for each end that follows a begin. Returns their number.
uint32_t CompressTime(std::span<BufferRequest> requests) {
  const auto by_begin =
      SortedBy(requests, [](const Interval& live) { return live.begin; });
  const auto by_end =
      SortedBy(requests, [](const Interval& live) { return live.end; });
  std::vector<Interval> lives(requests.size());
  uint32_t moments = 0;
  bool has_begun = false;  // a buffer, since the last moment
  size_t next = 0;
  for (uint32_t ending : by_end) {
    const uint32_t time = requests[ending].live.end;
    while (next < by_begin.size() &&
           requests[by_begin[next]].live.begin < time) {
      lives[by_begin[next++]].begin = moments;
      has_begun = true;
    }
    if (has_begun) ++moments;
    has_begun = false;
    lives[ending].end = moments;
  }
  for (size_t i = 0; i < requests.size(); ++i) requests[i].live = lives[i];
  return moments;
}

class Reducer {
 public:
  explicit Reducer(std::span<size_t> offsets) : offsets_(offsets) {}

  std::vector<PlacementPart> Run(const PlacementPart& whole) {
    std::vector<PlacementPart> open;
    Split(whole, open);
    while (!open.empty()) {
      PlacementPart part = std::move(open.back());
      open.pop_back();
      if (PlaceBottom(part)) {
        Split(part, open);
      } else {
        parts_.push_back(std::move(part));
      }
    }
    return std::move(parts_);
  }

 private:
  // Places the buffers that live through all of the part's time and takes them
  // out of it; false where there are none.
  bool PlaceBottom(PlacementPart& part) {
    part.compressed = part.requests;
    const uint32_t moments = CompressTime(part.compressed);
    PlacementPart rest;
    rest.bottom = part.bottom;
    for (size_t k = 0; k < part.members.size(); ++k) {
      if (part.compressed[k].live == Interval{0, moments}) {
        offsets_[part.members[k]] = rest.bottom;
        rest.bottom += part.requests[k].bytes;
      } else {
        rest.members.push_back(part.members[k]);
        rest.requests.push_back(part.requests[k]);
      }
    }
    if (rest.members.size() == part.members.size()) return false;
    part = std::move(rest);
    return true;
  }

  // Cuts where nobody lives on both sides.
  static void Split(const PlacementPart& part,
                    std::vector<PlacementPart>& open) {
    uint32_t end = 0;
    bool is_first = true;
    for (uint32_t k : SortedBy(
             part.requests, [](const Interval& live) { return live.begin; })) {
      const Interval& live = part.requests[k].live;
      if (is_first || live.begin >= end) {
        open.emplace_back().bottom = part.bottom;
      }
      is_first = false;
      open.back().members.push_back(part.members[k]);
      open.back().requests.push_back(part.requests[k]);
      end = std::max(end, live.end);
    }
  }

  std::span<size_t> offsets_;
  std::vector<PlacementPart> parts_;
};

}  // namespace

std::vector<PlacementPart> Reduce(std::span<const BufferRequest> requests,
                                  std::span<size_t> offsets) {
  PlacementPart whole;
  whole.members.resize(requests.size());
  std::iota(whole.members.begin(), whole.members.end(), 0u);
  whole.requests.assign(requests.begin(), requests.end());
  return Reducer(offsets).Run(whole);
}

}  // namespace thimble::planner
