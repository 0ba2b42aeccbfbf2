// SPDX-License-Identifier: Apache-2.0
#include "planner/place/canonical.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace thimble::planner {
namespace {

// Of one beginning, per buffer.
constexpr uint64_t kTriesPerBuffer = 8;

class CanonicalSearch {
 public:
  // Of several buffers, the one with the highest `priorities` is tried first.
  CanonicalSearch(std::span<const BufferRequest> requests, size_t limit,
                  uint64_t most_tries, std::span<const uint64_t> priorities)
      : requests_(requests),
        limit_(limit),
        tries_(most_tries),
        priorities_(priorities) {
    std::vector<uint32_t> begins;
    for (const BufferRequest& r : requests) begins.push_back(r.live.begin);
    std::sort(begins.begin(), begins.end());
    begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
    // Live bytes grow where a buffer begins: no other moment matters.
    const auto moment = [&](uint32_t time) {
      return static_cast<size_t>(
          std::lower_bound(begins.begin(), begins.end(), time) -
          begins.begin());
    };
    top_.resize(begins.size());
    to_come_.resize(begins.size());
    for (const BufferRequest& r : requests) {
      lives_.push_back({moment(r.live.begin), moment(r.live.end)});
      for (size_t m = lives_.back().begin; m < lives_.back().end; ++m) {
        to_come_[m] += r.bytes;
      }
    }
    offsets_.assign(requests.size(), kNotPlaced);
  }

  // No tries left: it was given up.
  uint64_t tries() const { return tries_; }

  std::optional<Placement> Run() {
    if (!Extend(0)) return std::nullopt;
    Placement placement{.offsets = offsets_};
    for (size_t i = 0; i < requests_.size(); ++i) {
      placement.bytes =
          std::max(placement.bytes, offsets_[i] + requests_[i].bytes);
    }
    return placement;
  }

 private:
  static constexpr size_t kNotPlaced = SIZE_MAX;

  struct Moments {
    size_t begin, end;
  };
  struct Choice {
    size_t offset;
    uint32_t buffer;
  };

  // Places all that are left. Looks at the lowest moment: one of those that
  // live at it stands there, or nobody does.
  bool Extend(size_t placed) {
    if (placed == requests_.size()) return true;
    if (!CanStillFit()) return false;
    const size_t lowest = LowestMoment();
    size_t higher = kNotPlaced;  // where the next one may stand at least
    for (uint32_t i : LivingAt(lowest)) {
      const size_t on = Below(i);
      if (on > top_[lowest]) {
        higher = std::min(higher, on);
        continue;
      }
      higher = std::min(higher, OnOthers(i, lowest));
      if (tries_ == 0) return false;
      --tries_;
      const Choice choice{on, i};
      const std::vector<size_t> before = Put(choice);
      if (Extend(placed + 1)) return true;
      Take(choice, before);
    }
    if (higher == kNotPlaced || tries_ == 0) return false;
    --tries_;
    const size_t before = std::exchange(top_[lowest], higher);
    if (Extend(placed)) return true;
    top_[lowest] = before;
    return false;
  }

  bool CanStillFit() const {
    for (size_t m = 0; m < top_.size(); ++m) {
      if (to_come_[m] > 0 && top_[m] + to_come_[m] > limit_) return false;
    }
    return true;
  }

  // Of those at which something is still to come.
  size_t LowestMoment() const {
    size_t lowest = kNotPlaced;
    for (size_t m = 0; m < top_.size(); ++m) {
      if (to_come_[m] == 0) continue;
      if (lowest == kNotPlaced || top_[m] < top_[lowest]) lowest = m;
    }
    return lowest;
  }

  size_t Below(uint32_t i) const {
    size_t top = 0;
    for (size_t m = lives_[i].begin; m < lives_[i].end; ++m) {
      top = std::max(top, top_[m]);
    }
    return top;
  }

  // Where `i` may stand at least if it stands on one that is to come, and that
  // does not live at `moment`.
  size_t OnOthers(uint32_t i, size_t moment) const {
    size_t least = kNotPlaced;
    for (uint32_t j = 0; j < requests_.size(); ++j) {
      const Moments& life = lives_[j];
      if (offsets_[j] != kNotPlaced || life.end <= lives_[i].begin ||
          lives_[i].end <= life.begin ||
          (life.begin <= moment && moment < life.end)) {
        continue;
      }
      least = std::min(least, Below(j) + requests_[j].bytes);
    }
    return least;
  }

  // Not placed yet, in the order in which they are tried. Of those that are
  // alike, one.
  std::vector<uint32_t> LivingAt(size_t moment) const {
    std::vector<uint32_t> living;
    for (uint32_t i = 0; i < requests_.size(); ++i) {
      const Moments& life = lives_[i];
      if (offsets_[i] == kNotPlaced && life.begin <= moment &&
          moment < life.end) {
        living.push_back(i);
      }
    }
    const auto key = [this](uint32_t i) {
      const Moments& life = lives_[i];
      return std::tuple(priorities_[i], requests_[i].bytes, life.begin,
                        life.end);
    };
    std::stable_sort(living.begin(), living.end(),
                     [&](uint32_t a, uint32_t b) { return key(a) > key(b); });
    living.erase(
        std::unique(living.begin(), living.end(),
                    [&](uint32_t a, uint32_t b) { return key(a) == key(b); }),
        living.end());
    return living;
  }

  // Returns the tops that it covers.
  std::vector<size_t> Put(const Choice& choice) {
    const auto [begin, end] = lives_[choice.buffer];
    const size_t bytes = requests_[choice.buffer].bytes;
    std::vector<size_t> before;
    for (size_t m = begin; m < end; ++m) {
      before.push_back(top_[m]);
      top_[m] = choice.offset + bytes;
      to_come_[m] -= bytes;
    }
    offsets_[choice.buffer] = choice.offset;
    return before;
  }

  void Take(const Choice& choice, const std::vector<size_t>& before) {
    const auto [begin, end] = lives_[choice.buffer];
    for (size_t m = begin; m < end; ++m) {
      top_[m] = before[m - begin];
      to_come_[m] += requests_[choice.buffer].bytes;
    }
    offsets_[choice.buffer] = kNotPlaced;
  }

  std::span<const BufferRequest> requests_;
  size_t limit_;
  uint64_t tries_;  // left
  std::span<const uint64_t> priorities_;
  std::vector<Moments> lives_;  // per buffer
  std::vector<size_t> offsets_;
  std::vector<size_t> top_;      // per moment: end of the highest buffer
  std::vector<size_t> to_come_;  // per moment: bytes that are not placed yet
};

// Much time times bytes first, or long lives, or many bytes; which of them
// leads to a placement depends. Later beginnings shuffle buffers that are
// within a factor of four.
std::vector<uint64_t> Priorities(std::span<const BufferRequest> requests,
                                 uint32_t begun) {
  constexpr uint32_t kMeasures = 3;
  const RandomStream random(begun, 0, 0);
  std::vector<uint64_t> priorities;
  for (uint32_t i = 0; i < requests.size(); ++i) {
    const uint64_t length = requests[i].live.end - requests[i].live.begin;
    const uint64_t measures[kMeasures] = {length * requests[i].bytes, length,
                                          requests[i].bytes};
    const uint64_t weight =
        begun < kMeasures ? 1 : 64 + random.Block(i)[0] % 192;
    priorities.push_back(measures[begun % kMeasures] * weight);
  }
  return priorities;
}

}  // namespace

std::optional<Placement> PlaceCanonically(
    std::span<const BufferRequest> requests, size_t limit,
    uint64_t most_tries) {
  const uint64_t tries = kTriesPerBuffer * requests.size();
  for (uint32_t begun = 0; begun * tries < most_tries; ++begun) {
    const std::vector<uint64_t> priorities = Priorities(requests, begun);
    CanonicalSearch search(requests, limit, tries, priorities);
    std::optional<Placement> found = search.Run();
    if (found.has_value() || search.tries() > 0) return found;
  }
  return std::nullopt;
}

}  // namespace thimble::planner
