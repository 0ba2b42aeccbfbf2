// SPDX-License-Identifier: Apache-2.0
//
// Axes: what a run may use fewer of than were planned. A network for images has
// one, the images of a batch; one for text has more, such as the tokens and the
// sentences of a batch. A graph names its axes. A value whose leading extent
// counts along one of them says which, and a run says for each axis how many it
// uses. Plain values, safe from every thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace thimble {

inline constexpr size_t kMaxAxes = 4;

// An axis of a graph, or none: all of the value is used in every run.
class AxisId {
 public:
  constexpr AxisId() = default;
  explicit constexpr AxisId(uint8_t index) : index_(index) {}

  constexpr bool valid() const { return index_ != UINT8_MAX; }
  // REQUIRES: valid().
  constexpr size_t index() const { return index_; }
  friend constexpr bool operator==(AxisId, AxisId) = default;

 private:
  uint8_t index_ = UINT8_MAX;
};

// A batch and its microbatches are counted along the first axis of a graph.
inline constexpr AxisId kBatchAxis{0};

struct Axis {
  std::string name;      // of its units, a plural with an s: "images"
  int64_t capacity = 0;  // the most that a run may use

  // One of it: "image"
  std::string_view Unit() const;
  // "1 image", "2 images"
  std::string Counted(int64_t count) const;

  friend bool operator==(const Axis&, const Axis&) = default;
};

// What one pass uses of an axis: units [first, first + count) of the `total`
// that a step has.
struct AxisPart {
  int64_t first = 0;
  int64_t count = 0;
  int64_t total = 0;
};

// One per axis of the graph, the others unused.
using AxisParts = std::array<AxisPart, kMaxAxes>;

}  // namespace thimble
