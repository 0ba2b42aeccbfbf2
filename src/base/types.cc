// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/check.h"
#include "thimble/dtype.h"
#include "thimble/shape.h"

namespace thimble {

const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kU8:
      return "u8";
    case DType::kI32:
      return "i32";
    case DType::kBit:
      return "bit";
  }
  return "?";
}

size_t BytesFor(DType dtype, int64_t elements) {
  const auto n = static_cast<size_t>(elements);
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4 * n;
    case DType::kF16:
    case DType::kBF16:
      return 2 * n;
    case DType::kU8:
      return n;
    case DType::kBit:
      return (n + 7) / 8;
  }
  return 0;
}

Shape::Shape(std::initializer_list<int64_t> extents) : rank_(extents.size()) {
  TH_CHECK(extents.size() <= kMaxRank);
  size_t axis = 0;
  for (int64_t extent : extents) extents_[axis++] = extent;
}

int64_t Shape::elements() const { return elements_from(0); }

int64_t Shape::elements_from(size_t axis) const {
  int64_t product = 1;
  for (; axis < rank_; ++axis) product *= extents_[axis];
  return product;
}

std::string Shape::ToString() const {
  std::string text = "[";
  for (size_t axis = 0; axis < rank_; ++axis) {
    text += fmt::format("{}{}", axis == 0 ? "" : ", ", extents_[axis]);
  }
  return text + "]";
}

}  // namespace thimble
