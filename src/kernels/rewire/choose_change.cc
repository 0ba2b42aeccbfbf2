// SPDX-License-Identifier: Apache-2.0
#include "kernels/rewire/choose_change.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "kernels/rewire/magnitude.h"

namespace thimble::kernels {
namespace {

template <typename M>
int64_t CountBelow(const M& magnitudes, const MatrixChange& change) {
  int64_t below = 0;
  for (int64_t b = change.first; b < change.first + change.kept; ++b) {
    below += magnitudes(b) < change.cut ? 1 : 0;
  }
  return below;
}

// Finds the magnitude of the smallest `pruned` blocks' largest, and how many of
// those that equal it are among them: eight bits at a time, from the top.
template <typename M>
void FindCut(const M& magnitudes, MatrixChange& change) {
  uint32_t cut = 0;
  int64_t rank = change.pruned;  // among those that begin as `cut` does
  for (int shift = 24; shift >= 0; shift -= 8) {
    std::array<uint32_t, 256> counts{};
    const uint32_t known = shift == 24 ? 0 : ~uint32_t{0} << (shift + 8);
    for (int64_t b = change.first; b < change.first + change.kept; ++b) {
      const uint32_t magnitude = magnitudes(b);
      if ((magnitude & known) == cut) ++counts[magnitude >> shift & 0xFFu];
    }
    uint32_t digit = 0;
    while (rank > counts[digit]) rank -= counts[digit++];
    cut |= digit << shift;
  }
  change.cut = cut;
  change.ties = rank;
}

uint64_t RandomBelow(uint64_t n, const RandomStream& random, uint64_t& draws) {
  return random.Bits(draws++) * n >> 32;
}

class Growth {
 public:
  Growth(const RandomStream& random, std::span<MatrixChange> changes)
      : random_(random), changes_(changes) {
    for (const MatrixChange& c : changes) {
      left_ += c.pruned;
      survivors_ += c.survivors();
    }
    // So that products of two numbers fit.
    TH_CHECK(left_ <= INT32_MAX && survivors_ <= INT32_MAX);
  }

  void Share() {
    while (left_ > 0) {
      const int64_t before = left_;
      Pass();
      if (left_ == before) GiveToOneWithRoom();
    }
  }

 private:
  // left_ times the matrix's share.
  int64_t Rounded(const MatrixChange& change, int64_t left) const {
    const int64_t product = change.survivors() * left;
    const int64_t quotient = product / survivors_;
    const int64_t twice = 2 * (product % survivors_);
    const bool up =
        twice > survivors_ || (twice == survivors_ && quotient % 2 == 1);
    return quotient + (up ? 1 : 0);
  }

  int64_t Room(const MatrixChange& change) const {
    return change.free() + (may_regrow_ ? change.pruned : 0) - change.grown;
  }

  void Place(MatrixChange& change, int64_t wanted) {
    const int64_t n =
        std::max<int64_t>(0, std::min({wanted, Room(change), left_}));
    change.grown += n;
    left_ -= n;
  }

  void Pass() {
    const int64_t left = left_;
    int64_t difference = left;
    for (const MatrixChange& c : changes_) difference -= Rounded(c, left);
    const MatrixChange* one = nullptr;
    if (difference != 0) {
      one = &changes_[RandomBelow(changes_.size(), random_, draws_)];
    }
    for (MatrixChange& c : changes_) {
      Place(c, Rounded(c, left) + (&c == one ? difference : 0));
    }
  }

  void GiveToOneWithRoom() {
    uint64_t with_room = 0;
    for (const MatrixChange& c : changes_) with_room += Room(c) > 0 ? 1 : 0;
    if (with_room == 0) {
      TH_CHECK(!may_regrow_);  // all that was pruned fits there
      may_regrow_ = true;
      return;
    }
    uint64_t chosen = RandomBelow(with_room, random_, draws_);
    for (MatrixChange& c : changes_) {
      if (Room(c) > 0 && chosen-- == 0) return Place(c, left_);
    }
  }

  const RandomStream& random_;
  std::span<MatrixChange> changes_;
  int64_t left_ = 0;  // blocks to place
  int64_t survivors_ = 0;
  uint64_t draws_ = 0;
  bool may_regrow_ = false;
};

}  // namespace

void PruneBelow(float threshold, const ConstTensor& weights,
                int64_t block_values, std::span<MatrixChange> changes) {
  TH_CHECK(threshold >= 0);
  WithMagnitudes(weights, block_values, [&](const auto& magnitudes) {
    for (MatrixChange& change : changes) {
      change.cut = MagnitudeBits(threshold);
      change.pruned = CountBelow(magnitudes, change);
      change.keeps_first = change.pruned > 0 && change.pruned == change.kept;
      if (change.keeps_first) --change.pruned;
    }
  });
}

void PruneSmallest(double fraction, const ConstTensor& weights,
                   int64_t block_values, std::span<MatrixChange> changes) {
  TH_CHECK(0 <= fraction && fraction <= 1);
  WithMagnitudes(weights, block_values, [&](const auto& magnitudes) {
    for (MatrixChange& change : changes) {
      const auto share =
          static_cast<int64_t>(fraction * static_cast<double>(change.kept));
      change.pruned = std::max<int64_t>(
          0, std::min({share, change.kept - 1, change.free()}));
      change.grown = change.pruned;
      if (change.pruned > 0) FindCut(magnitudes, change);
    }
  });
}

void ShareGrowth(const RandomStream& random, std::span<MatrixChange> changes) {
  Growth(random, changes).Share();
}

float NextThreshold(float threshold, int64_t pruned, int64_t target) {
  // Zero and infinity would stay what they are for ever.
  constexpr float kLeast = std::numeric_limits<float>::min();
  constexpr float kMost = std::numeric_limits<float>::max() / 2;
  if (10 * pruned > 11 * target) return std::max(kLeast, threshold / 2);
  if (10 * pruned < 9 * target) {
    return std::clamp(2 * threshold, kLeast, kMost);
  }
  return threshold;
}

}  // namespace thimble::kernels
