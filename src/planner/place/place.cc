// SPDX-License-Identifier: Apache-2.0
#include "planner/place/place.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <set>

#include "base/rng.h"

namespace thimble::planner {
namespace {

bool LiveTogether(const Interval& a, const Interval& b) {
  return a.begin < b.end && b.begin < a.end;
}

uint64_t Length(const Interval& live) { return live.end - live.begin; }

// Buffers whose pairwise checks a repair round may cost: keeps planning a
// thousand-layer network in seconds.
constexpr uint64_t kRepairWork = 40'000'000;
constexpr int kMaxRepairs = 300;
// The same for the single moves after them: some tenths of a second at most.
constexpr uint64_t kMoveWork = 400'000'000;
constexpr uint64_t kMovesPerBuffer = 400;
constexpr size_t kFewBuffers = 16;

using Key = std::function<uint64_t(const BufferRequest&)>;

// Indices by descending key, then by descending size, then by index.
std::vector<uint32_t> OrderBy(std::span<const BufferRequest> requests,
                              const Key& key) {
  std::vector<uint32_t> order(requests.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const uint64_t ka = key(requests[a]);
    const uint64_t kb = key(requests[b]);
    return ka != kb ? ka > kb : requests[a].bytes > requests[b].bytes;
  });
  return order;
}

std::vector<std::vector<uint32_t>> Orders(
    std::span<const BufferRequest> requests) {
  uint32_t end = 0;
  for (const BufferRequest& r : requests) end = std::max(end, r.live.end);
  const Key keys[] = {
      [](const BufferRequest& r) { return uint64_t{r.bytes}; },
      [](const BufferRequest& r) { return r.bytes * Length(r.live); },
      [](const BufferRequest& r) { return Length(r.live); },
      [end](const BufferRequest& r) { return uint64_t{end - r.live.begin}; },
      [](const BufferRequest& r) { return uint64_t{r.live.end}; },
  };
  std::vector<std::vector<uint32_t>> orders;
  for (const Key& key : keys) orders.push_back(OrderBy(requests, key));
  return orders;
}

// Moves the buffers that reach the top to the front of the order.
void RaiseTop(std::span<const BufferRequest> requests,
              const Placement& placement, std::vector<uint32_t>& order) {
  std::stable_partition(order.begin(), order.end(), [&](uint32_t i) {
    return placement.offsets[i] + requests[i].bytes == placement.bytes;
  });
}

void MoveToFront(uint32_t buffer, std::vector<uint32_t>& order) {
  const auto at = std::find(order.begin(), order.end(), buffer);
  std::rotate(order.begin(), at, at + 1);
}

// As PlaceInOrder, but gives up where the highest byte would be above `most`,
// and names the buffer that would have it.
std::optional<uint32_t> PlaceWithin(std::span<const BufferRequest> requests,
                                    std::span<const uint32_t> order, Fit fit,
                                    size_t most, Placement& placement) {
  struct Placed {
    Interval live;
    size_t offset, end;
  };
  placement.bytes = 0;
  placement.offsets.resize(requests.size());
  std::vector<Placed> placed;  // by ascending offset
  placed.reserve(order.size());
  for (uint32_t i : order) {
    const BufferRequest& request = requests[i];
    size_t gap_begin = 0;
    size_t best = SIZE_MAX;
    size_t best_gap = SIZE_MAX;
    for (const Placed& other : placed) {
      if (!LiveTogether(request.live, other.live)) continue;
      if (other.offset >= gap_begin + request.bytes) {
        const size_t gap = other.offset - gap_begin;
        if (gap < best_gap) {
          best = gap_begin;
          best_gap = gap;
        }
        if (fit == Fit::kLowest) break;
      }
      gap_begin = std::max(gap_begin, other.end);
    }
    const size_t offset = best == SIZE_MAX ? gap_begin : best;
    placement.offsets[i] = offset;
    placement.bytes = std::max(placement.bytes, offset + request.bytes);
    if (placement.bytes > most) return i;
    const auto above = std::upper_bound(
        placed.begin(), placed.end(), offset,
        [](size_t value, const Placed& p) { return value < p.offset; });
    placed.insert(above, {request.live, offset, offset + request.bytes});
  }
  return std::nullopt;
}

struct Attempt {
  std::vector<uint32_t> order;
  Fit fit = Fit::kLowest;
  Placement placement;
};

// Moves single buffers to other places of the best order, at random but always
// the same, and keeps what does not make it worse.
void Improve(std::span<const BufferRequest> requests, size_t bound, int rounds,
             Attempt& best) {
  const RandomStream random(0, 0, 0);
  const auto n = static_cast<uint32_t>(requests.size());
  for (int round = 0; round < rounds && best.placement.bytes > bound; ++round) {
    const PhiloxBlock bits = random.Block(static_cast<uint32_t>(round));
    const uint32_t from = bits[0] % n;
    const uint32_t to = bits[1] % n;
    Attempt attempt = best;
    const uint32_t moved = attempt.order[from];
    attempt.order.erase(attempt.order.begin() + from);
    attempt.order.insert(attempt.order.begin() + to, moved);
    if (!PlaceWithin(requests, attempt.order, attempt.fit, best.placement.bytes,
                     attempt.placement)) {
      best = std::move(attempt);
    }
  }
}

}  // namespace

size_t LowerBound(std::span<const BufferRequest> requests) {
  uint32_t end = 0;
  for (const BufferRequest& r : requests) end = std::max(end, r.live.end);
  // Differences in time, then their running sum.
  std::vector<int64_t> change(end + 1, 0);
  for (const BufferRequest& r : requests) {
    change[r.live.begin] += static_cast<int64_t>(r.bytes);
    change[r.live.end] -= static_cast<int64_t>(r.bytes);
  }
  int64_t live = 0;
  int64_t most = 0;
  for (int64_t step : change) most = std::max(most, live += step);
  return static_cast<size_t>(most);
}

Placement PlaceInOrder(std::span<const BufferRequest> requests,
                       std::span<const uint32_t> order, Fit fit) {
  Placement placement;
  PlaceWithin(requests, order, fit, SIZE_MAX, placement);
  return placement;
}

namespace {

// The portfolio proper, for requests of which none lives throughout.
Placement SearchPortfolio(std::span<const BufferRequest> requests) {
  if (requests.empty()) return {};
  const size_t bound = LowerBound(requests);
  Attempt best;
  best.placement.bytes = SIZE_MAX;
  const uint64_t cost =
      std::max<uint64_t>(1, requests.size() * requests.size());
  const int repairs =
      static_cast<int>(std::min<uint64_t>(kMaxRepairs, kRepairWork / cost));
  std::vector<Attempt> attempts;
  for (const std::vector<uint32_t>& order : Orders(requests)) {
    for (Fit fit : {Fit::kLowest, Fit::kTightest}) {
      attempts.push_back({order, fit, {}});
    }
  }
  // In turns: what one of them needs many repairs for, another may not need any
  // for. An order that comes again would only go round in circles.
  std::set<std::vector<uint32_t>> tried;
  for (int round = 0; round <= repairs && !attempts.empty(); ++round) {
    for (Attempt& attempt : attempts) {
      const std::optional<uint32_t> too_high =
          PlaceWithin(requests, attempt.order, attempt.fit,
                      best.placement.bytes - 1, attempt.placement);
      if (too_high.has_value()) {
        MoveToFront(*too_high, attempt.order);
        continue;
      }
      best = attempt;
      if (best.placement.bytes == bound) return best.placement;
      RaiseTop(requests, attempt.placement, attempt.order);
    }
    std::erase_if(attempts, [&](const Attempt& attempt) {
      std::vector<uint32_t> key = attempt.order;
      key.push_back(static_cast<uint32_t>(attempt.fit));
      return !tried.insert(std::move(key)).second;
    });
  }
  // A handful of buffers has few orders, and the portfolio has tried them.
  if (requests.size() < kFewBuffers) return best.placement;
  const int moves = static_cast<int>(
      std::min<uint64_t>(kMovesPerBuffer * requests.size(), kMoveWork / cost));
  Improve(requests, bound, moves, best);
  return best.placement;
}

}  // namespace

// Buffers that live throughout may always lie at the bottom: none can be in
// another's way there, and the search has fewer left to place.
Placement PlacePortfolio(std::span<const BufferRequest> requests) {
  Interval whole{UINT32_MAX, 0};
  for (const BufferRequest& r : requests) {
    whole.begin = std::min(whole.begin, r.live.begin);
    whole.end = std::max(whole.end, r.live.end);
  }
  Placement placement;
  placement.offsets.resize(requests.size());
  std::vector<uint32_t> others;
  size_t bottom = 0;
  for (uint32_t i = 0; i < requests.size(); ++i) {
    if (requests[i].live == whole) {
      placement.offsets[i] = bottom;
      bottom += requests[i].bytes;
    } else {
      others.push_back(i);
    }
  }
  std::vector<BufferRequest> rest;
  rest.reserve(others.size());
  for (uint32_t i : others) rest.push_back(requests[i]);
  const Placement above = SearchPortfolio(rest);
  for (size_t k = 0; k < others.size(); ++k) {
    placement.offsets[others[k]] = bottom + above.offsets[k];
  }
  placement.bytes = bottom + above.bytes;
  return placement;
}

}  // namespace thimble::planner
