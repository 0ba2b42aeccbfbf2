// SPDX-License-Identifier: Apache-2.0
//
// The order of work of a pass whose outputs come in groups. Internal to the
// family.
#pragma once

#include <algorithm>
#include <cstdint>

namespace thimble::kernels::conv {

// Pairs (group, unit) in an order that keeps inputs in the L2 cache while
// groups of outputs pass over them, and packs weights seldom: blocks of units,
// in each all groups, in each the block's units.
class UnitOrder {
 public:
  UnitOrder(int64_t groups, int64_t units, int64_t block)
      : groups_(groups), units_(units), block_(block) {}
  int64_t count() const { return groups_ * units_; }
  int64_t group(int64_t i) const {
    return i % (groups_ * block_) / units_of(i);
  }
  int64_t unit(int64_t i) const {
    return block_of(i) * block_ + i % (groups_ * block_) % units_of(i);
  }

 private:
  int64_t block_of(int64_t i) const { return i / (groups_ * block_); }
  // The last block may have fewer.
  int64_t units_of(int64_t i) const {
    return std::min(block_, units_ - block_of(i) * block_);
  }
  int64_t groups_;
  int64_t units_;
  int64_t block_;
};

}  // namespace thimble::kernels::conv
