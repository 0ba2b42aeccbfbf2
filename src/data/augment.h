// SPDX-License-Identifier: Apache-2.0
//
// Augmentation of training images, in place and without a buffer: what is done
// to an image is a pure function of (seed, epoch, record), so it depends on
// neither batch size nor threads, and a resumed run sees the same images.
//
// Pure functions: safe from every thread.
#pragma once

#include <cstdint>
#include <span>

#include "thimble/data.h"

namespace thimble {

inline constexpr int kCropPadding = 4;
// Of an image that can be cropped: what is mirrored into the padding must not
// reach into the padding of the other side.
inline constexpr int64_t kMinCropSide = 2 * kCropPadding + 1;

struct CropFlip {
  // Where the crop begins, in pixels of the unpadded image:
  // -kCropPadding .. kCropPadding.
  int down;
  int right;
  bool mirrored;
};

// Uniform and independent over all 9 x 9 x 2 of them.
CropFlip DrawCropFlip(uint64_t seed, uint64_t epoch, int64_t record);

// REQUIRES: sides of at least kMinCropSide, image.size() == spec.bytes().
void ApplyCropFlip(const CropFlip& choice, const ImageSpec& spec,
                   std::span<uint8_t> image);

}  // namespace thimble
