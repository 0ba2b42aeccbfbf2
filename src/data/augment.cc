// SPDX-License-Identifier: Apache-2.0
#include "data/augment.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/rng.h"

namespace thimble {
namespace {

// A share of 2^32 off uniform, which is nothing: no rejection is needed.
int BelowFromBits(uint32_t bits, uint32_t bound) {
  return static_cast<int>(uint64_t{bits} * bound >> 32);
}

// `count` items of `bytes` bytes each, read `shift` items further on: item i
// becomes what was item i + shift, with the items beyond an end mirrored in the
// last one before it (which is not repeated). Once the others have moved, the
// mirror stands at `edge`, and what is mirrored has been moved too.
void Shift(uint8_t* items, int64_t count, size_t bytes, int shift) {
  const int64_t gap = std::abs(shift);
  if (gap == 0) return;
  const auto at = [&](int64_t i) {
    return items + static_cast<size_t>(i) * bytes;
  };
  const auto kept = static_cast<size_t>(count - gap) * bytes;
  std::memmove(at(shift > 0 ? 0 : gap), at(shift > 0 ? gap : 0), kept);
  const int64_t edge = shift > 0 ? count - 1 - gap : gap;
  const int64_t outwards = shift > 0 ? 1 : -1;
  for (int64_t i = 1; i <= gap; ++i) {
    std::memcpy(at(edge + i * outwards), at(edge - i * outwards), bytes);
  }
}

}  // namespace

CropFlip DrawCropFlip(uint64_t seed, uint64_t epoch, int64_t record) {
  const PhiloxBlock bits = RandomStream(seed, epoch, kAugmentStream)
                               .Block(static_cast<uint32_t>(record));
  constexpr uint32_t kPlaces = 2 * kCropPadding + 1;
  return {BelowFromBits(bits[0], kPlaces) - kCropPadding,
          BelowFromBits(bits[1], kPlaces) - kCropPadding, bits[2] >> 31 != 0};
}

void ApplyCropFlip(const CropFlip& choice, const ImageSpec& spec,
                   std::span<uint8_t> image) {
  TH_CHECK(spec.height >= kMinCropSide && spec.width >= kMinCropSide);
  TH_CHECK(image.size() == static_cast<size_t>(spec.bytes()));
  const auto width = static_cast<size_t>(spec.width);
  const size_t plane = static_cast<size_t>(spec.height) * width;
  for (size_t first = 0; first < image.size(); first += plane) {
    Shift(&image[first], spec.height, width, choice.down);
  }
  for (size_t first = 0; first < image.size(); first += width) {
    uint8_t* row = &image[first];
    Shift(row, spec.width, 1, choice.right);
    if (choice.mirrored) std::reverse(row, row + width);
  }
}

}  // namespace thimble
