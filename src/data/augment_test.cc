// SPDX-License-Identifier: Apache-2.0
#include "data/augment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <vector>

#include "base/rng.h"
#include "base/test_allocations.h"

namespace thimble {
namespace {

std::vector<uint8_t> Noise(size_t size) {
  const RandomStream random(5, 6, 7);
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<uint8_t>(random.Bits(i));
  }
  return bytes;
}

// As numpy's pad(mode="reflect") does: 2 1 0 1 2 ... n-2 n-1 n-2.
int64_t Reflect(int64_t i, int64_t n) {
  if (i < 0) return -i;
  return i >= n ? 2 * (n - 1) - i : i;
}

// The definition: a padded copy, a window of it, mirrored.
std::vector<uint8_t> Reference(const CropFlip& choice, const ImageSpec& spec,
                               const std::vector<uint8_t>& image) {
  const int64_t h = spec.height + 2 * kCropPadding;
  const int64_t w = spec.width + 2 * kCropPadding;
  std::vector<uint8_t> padded(static_cast<size_t>(spec.channels * h * w));
  for (int64_t c = 0; c < spec.channels; ++c) {
    for (int64_t y = 0; y < h; ++y) {
      for (int64_t x = 0; x < w; ++x) {
        padded[static_cast<size_t>((c * h + y) * w + x)] =
            image[static_cast<size_t>(
                (c * spec.height + Reflect(y - kCropPadding, spec.height)) *
                    spec.width +
                Reflect(x - kCropPadding, spec.width))];
      }
    }
  }
  std::vector<uint8_t> out;
  for (int64_t c = 0; c < spec.channels; ++c) {
    for (int64_t y = 0; y < spec.height; ++y) {
      for (int64_t x = 0; x < spec.width; ++x) {
        const int64_t from = choice.mirrored ? spec.width - 1 - x : x;
        out.push_back(padded[static_cast<size_t>(
            (c * h + y + choice.down + kCropPadding) * w + from + choice.right +
            kCropPadding)]);
      }
    }
  }
  return out;
}

TEST(Augment, EqualsPaddingCroppingAndMirroringACopy) {
  for (const ImageSpec& spec :
       {ImageSpec{3, 32, 32, 10}, ImageSpec{1, 28, 28, 10},
        ImageSpec{2, 9, 13, 10}, ImageSpec{1, 40, 9, 10}}) {
    const auto bytes = static_cast<size_t>(spec.bytes());
    const std::vector<uint8_t> image = Noise(bytes);
    for (int down = -kCropPadding; down <= kCropPadding; ++down) {
      for (int right = -kCropPadding; right <= kCropPadding; ++right) {
        for (const bool mirrored : {false, true}) {
          const CropFlip choice{down, right, mirrored};
          // One byte more on either side, to see a write outside.
          std::vector<uint8_t> got(bytes + 2, 0xA5);
          const std::span<uint8_t> inside = std::span(got).subspan(1, bytes);
          std::copy(image.begin(), image.end(), inside.begin());
          ApplyCropFlip(choice, spec, inside);
          EXPECT_EQ(got.front(), 0xA5);
          EXPECT_EQ(got.back(), 0xA5);
          const std::vector<uint8_t> want = Reference(choice, spec, image);
          EXPECT_TRUE(std::equal(inside.begin(), inside.end(), want.begin()))
              << spec.height << " x " << spec.width << ": " << down << " "
              << right << " " << mirrored;
        }
      }
    }
  }
}

TEST(Augment, AllocatesNothing) {
  const ImageSpec spec{3, 32, 32, 10};
  std::vector<uint8_t> image = Noise(3072);
  const int64_t before = AllocationCount();
  for (int64_t record = 0; record < 100; ++record) {
    ApplyCropFlip(DrawCropFlip(1, 2, record), spec, image);
  }
  EXPECT_EQ(AllocationCount() - before, 0);
}

using Choice = std::tuple<int, int, bool>;

Choice Draw(uint64_t seed, uint64_t epoch, int64_t record) {
  const CropFlip choice = DrawCropFlip(seed, epoch, record);
  return {choice.down, choice.right, choice.mirrored};
}

// Written down, because a trained network depends on them for ever.
TEST(Augment, DrawsTheSameEverywhereAndAlways) {
  EXPECT_EQ(Draw(1, 0, 0), Choice(1, 0, true));
  EXPECT_EQ(Draw(1, 0, 1), Choice(3, -4, false));
  EXPECT_EQ(Draw(1, 7, 49'999), Choice(-1, -4, true));
  EXPECT_EQ(Draw(2, 7, 49'999), Choice(-1, 2, true));
}

TEST(Augment, DrawsAllChoicesEquallyOften) {
  // 162 choices, 400 each expected. Each count is binomial, so over six
  // deviations from the mean is a fault (one in 10^9 for each).
  constexpr int kChoices = 9 * 9 * 2;
  constexpr int kEach = 400;
  std::map<Choice, int> counts;
  for (int64_t record = 0; record < kChoices * kEach; ++record) {
    ++counts[Draw(3, 4, record)];
  }
  EXPECT_EQ(counts.size(), static_cast<size_t>(kChoices));
  for (const auto& [choice, count] : counts) {
    EXPECT_LE(std::abs(count - kEach), 6 * std::sqrt(kEach));
    EXPECT_LE(std::abs(std::get<0>(choice)), kCropPadding);
    EXPECT_LE(std::abs(std::get<1>(choice)), kCropPadding);
  }
}

TEST(Augment, ChangesFromEpochToEpochAndWithTheSeed) {
  constexpr int64_t kRecords = 1000;
  int same_epoch = 0;
  int same_seed = 0;
  for (int64_t record = 0; record < kRecords; ++record) {
    same_epoch += Draw(1, 0, record) == Draw(1, 1, record);
    same_seed += Draw(1, 0, record) == Draw(2, 0, record);
  }
  // By chance one in 162.
  EXPECT_LT(same_epoch, 30);
  EXPECT_LT(same_seed, 30);
}

TEST(Augment, HasNamesThatParse) {
  for (const Augment augment : {Augment::kNone, Augment::kCropFlip}) {
    EXPECT_EQ(*ParseAugment(AugmentName(augment)), augment);
  }
  const Status status = ParseAugment("cutout").status();
  EXPECT_EQ(status.code(), StatusCode::kUsage);
  EXPECT_NE(status.message().find("none or crop-flip"), std::string::npos);
}

}  // namespace
}  // namespace thimble
