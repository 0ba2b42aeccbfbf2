// SPDX-License-Identifier: Apache-2.0
//
// Shape: up to five extents, held inline so that copying one never allocates.
// The leading extent of a value may be a capacity (thimble/axis.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace thimble {

class Shape {
 public:
  static constexpr size_t kMaxRank = 5;

  Shape() = default;
  // REQUIRES: at most kMaxRank extents.
  Shape(std::initializer_list<int64_t> extents);

  size_t rank() const { return rank_; }
  // REQUIRES: axis < rank().
  int64_t operator[](size_t axis) const { return extents_[axis]; }
  // Product of all extents; 1 for rank 0.
  int64_t elements() const;
  // Product of the extents from `axis` on.
  int64_t elements_from(size_t axis) const;
  // The same with another first extent. REQUIRES: rank() >= 1.
  Shape WithLeading(int64_t extent) const;
  // "[32, 3, 28, 28]"
  std::string ToString() const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::array<int64_t, kMaxRank> extents_{};
  size_t rank_ = 0;
};

}  // namespace thimble
