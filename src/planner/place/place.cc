// SPDX-License-Identifier: Apache-2.0
#include "planner/place/place.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "base/workspace.h"
#include "planner/lives.h"
#include "planner/place/canonical.h"
#include "planner/place/reduce.h"

namespace thimble::planner {
namespace {

uint64_t Length(const Interval& live) { return live.end - live.begin; }

// What repairs and moves may cost, in looks at a pair of buffers: bounds on
// work, not on time, so that plans do not depend on the machine's mood.
constexpr uint64_t kLooksPerBuffer = 100;  // to place it, about
constexpr uint64_t kRepairWork = 8'000'000;
constexpr uint64_t kMaxRepairs = 400;
constexpr int kFirstRepairs = 3;  // before the next order is tried
constexpr uint64_t kMoveWork = 4'000'000;
constexpr uint64_t kMovesPerBuffer = 400;
constexpr size_t kFewBuffers = 16;
// A search through all placements: for so many buffers, in looks as above.
constexpr size_t kMostBuffersToSearch = 100;
constexpr uint64_t kSearchWork = 40'000'000;
// And one with a little room, of a part in so many.
constexpr size_t kSmallGap = 200;
constexpr size_t kMostBuffersToSearchNear = 800;
constexpr uint64_t kTriesNear = 80;  // per buffer
// One order of more buffers takes so long that, for every candidate of a
// thousand layers, a gap of one in so many bytes is left.
constexpr size_t kManyBuffers = 4'000;
constexpr size_t kGapOfMany = 500;
constexpr size_t kAttemptsOfMany = 12;

// Where `bytes` go between ranges that are shown by ascending begin.
class GapSearch {
 public:
  GapSearch(size_t bytes, Fit fit) : bytes_(bytes), fit_(fit) {}

  // False where no further range can change the answer.
  bool See(size_t begin, size_t end) {
    if (begin >= free_ + bytes_ && begin - free_ < best_size_) {
      best_ = free_;
      best_size_ = begin - free_;
      if (fit_ == Fit::kLowest) return false;
    }
    free_ = std::max(free_, end);
    return true;
  }
  size_t offset() const { return best_ == SIZE_MAX ? free_ : best_; }

 private:
  size_t bytes_;
  Fit fit_;
  size_t free_ = 0;  // nothing that was seen lies from here on
  size_t best_ = SIZE_MAX;
  size_t best_size_ = SIZE_MAX;
};

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
      [](const BufferRequest& r) { return Length(r.live); },
      [](const BufferRequest& r) { return uint64_t{r.bytes}; },
      [](const BufferRequest& r) { return r.bytes * Length(r.live); },
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

struct Attempt {
  std::vector<uint32_t> order;
  Fit fit = Fit::kLowest;
  std::optional<size_t> ceiling;
  Placement placement;
};

constexpr size_t kNotPlaced = SIZE_MAX;

// Placed buffers. Networks repeat themselves, so many of them begin at the same
// offset, one after the other in time: an offset and a time find those that are
// in the way without a look at the others.
class PlacedSet {
 public:
  void Add(size_t offset, const BufferRequest& request) {
    auto level = std::lower_bound(
        levels_.begin(), levels_.end(), offset,
        [](const Level& l, size_t value) { return l.begin < value; });
    if (level == levels_.end() || level->begin != offset) {
      level = levels_.insert(level, Level{offset, {}});
    }
    level->in_time.insert(FirstBehind(*level, request.live),
                          {request.live, offset + request.bytes});
  }

  size_t FindGap(const BufferRequest& request, Fit fit) const {
    GapSearch gap(request.bytes, fit);
    for (const Level& level : levels_) {
      size_t end = 0;
      for (auto at = FirstBehind(level, request.live);
           at != level.in_time.end() && at->live.begin < request.live.end;
           ++at) {
        end = std::max(end, at->end);
      }
      if (end > 0 && !gap.See(level.begin, end)) break;
    }
    return gap.offset();
  }

 private:
  struct Placed {
    Interval live;
    size_t end;
  };
  struct Level {
    size_t begin;
    std::vector<Placed> in_time;  // none lives with another
  };
  using At = std::vector<Placed>::const_iterator;

  // The first that does not end before `live` begins.
  static At FirstBehind(const Level& level, const Interval& live) {
    return std::partition_point(
        level.in_time.begin(), level.in_time.end(),
        [&](const Placed& p) { return p.live.end <= live.begin; });
  }

  std::vector<Level> levels_;  // by ascending begin
};

// Offsets of those that live to the end, each below those that came before it.
void Hang(std::span<const BufferRequest> requests, size_t ceiling,
          std::span<size_t> offsets) {
  uint32_t end = 0;
  for (const BufferRequest& r : requests) end = std::max(end, r.live.end);
  std::vector<uint32_t> hung;
  for (uint32_t i = 0; i < requests.size(); ++i) {
    if (requests[i].live.end == end) hung.push_back(i);
  }
  std::stable_sort(hung.begin(), hung.end(), [&](uint32_t a, uint32_t b) {
    return requests[a].live.begin < requests[b].live.begin;
  });
  for (uint32_t i : hung) {
    TH_CHECK(requests[i].bytes <= ceiling);
    ceiling -= requests[i].bytes;
    offsets[i] = ceiling;
  }
}

// The portfolio for one part of a problem. A placement of at most `enough`
// bytes ends it.
class Portfolio {
 public:
  Portfolio(const PlacementPart& part, size_t enough)
      : part_(part),
        requests_(part.compressed),
        ceiling_(enough),
        enough_(enough) {
    if (requests_.size() > kManyBuffers) enough_ += enough / kGapOfMany;
    best_.placement.bytes = SIZE_MAX;
  }

  Placement Run() {
    std::vector<Attempt> attempts = Start();
    if (!IsDone() && requests_.size() <= kMostBuffersToSearch) {
      const uint64_t pairs = requests_.size() * requests_.size();
      SearchWithin(enough_, kSearchWork / pairs);
    }
    if (!IsDone()) Repair(std::move(attempts));
    // With a little room a search finds what it does not find without.
    const size_t near = RoundUpToAlignment(enough_ + enough_ / kSmallGap);
    if (best_.placement.bytes > near &&
        requests_.size() <= kMostBuffersToSearchNear) {
      SearchWithin(near, kTriesNear * requests_.size());
    }
    return std::move(best_.placement);
  }

 private:
  bool IsDone() const { return best_.placement.bytes <= enough_; }

  void Place(Attempt& attempt) const {
    attempt.placement =
        PlaceInOrder(requests_, attempt.order, attempt.fit, attempt.ceiling);
  }

  void Keep(const Attempt& attempt) {
    if (attempt.placement.bytes < best_.placement.bytes) best_ = attempt;
  }

  void SearchWithin(size_t limit, uint64_t tries) {
    auto found = PlaceCanonically(requests_, limit, tries);
    if (found.has_value()) best_.placement = *std::move(found);
  }

  void PlaceAndRepair(Attempt& attempt) {
    Place(attempt);
    Keep(attempt);
    for (int k = 0; k < kFirstRepairs; ++k) {
      if (attempt.placement.bytes <= ceiling_) return;
      RepairOnce(attempt);
    }
  }

  void RepairOnce(Attempt& attempt) {
    RaiseTop(requests_, attempt.placement, attempt.order);
    Place(attempt);
    Keep(attempt);
  }

  // Each order with each fit, with and without a ceiling, once; of many
  // buffers, the most promising ones.
  std::vector<Attempt> Start() {
    std::vector<Attempt> attempts;
    const auto is_enough = [&](const std::vector<uint32_t>& order, Fit fit,
                               std::optional<size_t> ceiling) {
      attempts.push_back({order, fit, ceiling, {}});
      PlaceAndRepair(attempts.back());
      return IsDone() || (requests_.size() > kManyBuffers &&
                          attempts.size() == kAttemptsOfMany);
    };
    // The largest first, which often is all that it takes.
    const auto bytes = [](const BufferRequest& r) { return uint64_t{r.bytes}; };
    if (is_enough(OrderBy(requests_, bytes), Fit::kLowest, {})) return attempts;
    // Lives are long or short by either time; which one tells more depends.
    for (const auto* lives : {&part_.compressed, &part_.requests}) {
      const std::vector<std::vector<uint32_t>> orders = Orders(*lives);
      for (const auto& ceiling : {std::optional(ceiling_), {}}) {
        for (Fit fit : {Fit::kLowest, Fit::kTightest}) {
          for (const std::vector<uint32_t>& order : orders) {
            if (is_enough(order, fit, ceiling)) return attempts;
          }
        }
      }
    }
    return attempts;
  }

  void Repair(std::vector<Attempt> attempts) {
    const uint64_t looks = kLooksPerBuffer * requests_.size() + 1;
    const uint64_t repairs =
        std::min(kMaxRepairs, kRepairWork / looks / attempts.size());
    // All of them side by side: the bound is met as soon as one can.
    for (uint64_t round = 0; round < repairs; ++round) {
      for (Attempt& attempt : attempts) {
        RepairOnce(attempt);
        if (IsDone()) return;
      }
    }
    // A handful of buffers has few orders, and they were tried.
    if (requests_.size() < kFewBuffers) return;
    Move(std::min(kMovesPerBuffer * requests_.size(), kMoveWork / looks));
  }

  // Moves single buffers to other places of the best order, at random but
  // always the same, and keeps what does not make it worse. Every second time
  // it is one that is too high.
  void Move(uint64_t rounds) {
    const RandomStream random(0, 0, 0);
    const auto n = static_cast<uint32_t>(requests_.size());
    for (uint64_t round = 0; round < rounds && !IsDone(); ++round) {
      const PhiloxBlock bits = random.Block(static_cast<uint32_t>(round));
      Attempt attempt = best_;
      uint32_t from = bits[0] % n;
      if (bits[2] % 2 == 0) {
        while (!IsTooHigh(attempt.order[from])) from = (from + 1) % n;
      }
      const uint32_t moved = attempt.order[from];
      attempt.order.erase(attempt.order.begin() + from);
      attempt.order.insert(attempt.order.begin() + bits[1] % n, moved);
      Place(attempt);
      if (attempt.placement.bytes <= best_.placement.bytes) {
        best_ = std::move(attempt);
      }
    }
  }

  // In the best placement.
  bool IsTooHigh(uint32_t i) const {
    return best_.placement.offsets[i] + requests_[i].bytes > enough_;
  }

  const PlacementPart& part_;
  std::span<const BufferRequest> requests_;
  size_t ceiling_;
  size_t enough_;
  Attempt best_;
};

}  // namespace

size_t LowerBound(std::span<const BufferRequest> requests) {
  uint32_t end = 0;
  for (const BufferRequest& r : requests) end = std::max(end, r.live.end);
  LiveBytesOverTime live(end);
  for (const BufferRequest& r : requests) live.Add(r.live, r.bytes);
  size_t most = 0;
  for (size_t bytes : live.Sum()) most = std::max(most, bytes);
  return most;
}

Placement PlaceInOrder(std::span<const BufferRequest> requests,
                       std::span<const uint32_t> order, Fit fit,
                       std::optional<size_t> ceiling) {
  Placement placement;
  placement.offsets.assign(requests.size(), kNotPlaced);
  if (ceiling.has_value()) Hang(requests, *ceiling, placement.offsets);
  PlacedSet placed;
  const auto add = [&](uint32_t i) {
    placed.Add(placement.offsets[i], requests[i]);
    placement.bytes =
        std::max(placement.bytes, placement.offsets[i] + requests[i].bytes);
  };
  for (uint32_t i = 0; i < requests.size(); ++i) {
    if (placement.offsets[i] != kNotPlaced) add(i);
  }
  for (uint32_t i : order) {
    if (placement.offsets[i] != kNotPlaced) continue;
    placement.offsets[i] = placed.FindGap(requests[i], fit);
    add(i);
  }
  return placement;
}

Placement PlacePortfolio(std::span<const BufferRequest> requests) {
  Placement placement;
  placement.offsets.resize(requests.size());
  // The worst part so far: no other one needs to be lower.
  size_t enough = LowerBound(requests);
  for (const PlacementPart& part : Reduce(requests, placement.offsets)) {
    const Placement above = Portfolio(part, enough - part.bottom).Run();
    enough = std::max(enough, part.bottom + above.bytes);
    for (size_t k = 0; k < part.members.size(); ++k) {
      placement.offsets[part.members[k]] = part.bottom + above.offsets[k];
    }
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    placement.bytes =
        std::max(placement.bytes, placement.offsets[i] + requests[i].bytes);
  }
  return placement;
}

}  // namespace thimble::planner
