// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/check.h"
#include "thimble/axis.h"
#include "thimble/dtype.h"
#include "thimble/rounding.h"
#include "thimble/shape.h"
#include "thimble/storage.h"
#include "thimble/text.h"

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

const char* RoundingName(Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearest:
      return "nearest";
    case Rounding::kStochastic:
      return "stochastic";
    case Rounding::kFeedback:
      return "feedback";
  }
  return "?";
}

Result<Rounding> ParseRounding(std::string_view name) {
  for (const Rounding rounding :
       {Rounding::kNearest, Rounding::kStochastic, Rounding::kFeedback}) {
    if (name == RoundingName(rounding)) return rounding;
  }
  return Status::Usage(fmt::format(
      "unknown rounding '{}'; it is nearest, stochastic or feedback", name));
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

std::string_view Axis::Unit() const {
  TH_CHECK(!name.empty() && name.back() == 's');
  return std::string_view(name).substr(0, name.size() - 1);
}

std::string Axis::Counted(int64_t count) const {
  return thimble::Counted(count, Unit());
}

int64_t Storage::Kept(int64_t elements) const {
  return sparsity.has_value() ? sparsity->kept * sparsity->block.values()
                              : elements;
}

namespace {

size_t AlignedForStorage(size_t bytes) {
  return (bytes + kStorageAlignment - 1) / kStorageAlignment *
         kStorageAlignment;
}

}  // namespace

size_t Storage::ScalesOffset(int64_t elements) const {
  TH_CHECK(blocks.has_value());
  return AlignedForStorage(BytesFor(dtype, Kept(elements)));
}

size_t Storage::Bytes(int64_t elements) const {
  const int64_t kept = Kept(elements);
  if (!blocks.has_value()) return BytesFor(dtype, kept);
  const int64_t scales = (kept + blocks->values - 1) / blocks->values;
  return ScalesOffset(elements) + BytesFor(blocks->scale, scales);
}

std::string Storage::ToString() const {
  std::string text = DTypeName(dtype);
  if (blocks.has_value()) {
    text += fmt::format(" in blocks of {}", blocks->values);
  }
  if (sparsity.has_value()) text += ", sparse";
  return text;
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

Shape Shape::WithLeading(int64_t extent) const {
  TH_CHECK(rank_ >= 1);
  Shape shape = *this;
  shape.extents_[0] = extent;
  return shape;
}

std::string Shape::ToString() const {
  std::string text = "[";
  for (size_t axis = 0; axis < rank_; ++axis) {
    text += fmt::format("{}{}", axis == 0 ? "" : ", ", extents_[axis]);
  }
  return text + "]";
}

}  // namespace thimble
