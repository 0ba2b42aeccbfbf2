// SPDX-License-Identifier: Apache-2.0
#include "data/synthetic.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/rng.h"
#include "data/pixel_statistics.h"

namespace thimble {
namespace {

constexpr uint64_t kSeed = 0x7468696D626C65;  // "thimble"
// Streams of kSeed: the grids (step = class), then the images (step = index).
constexpr uint32_t kGridStream = 0;
constexpr uint32_t kTrainStream = 1;
constexpr uint32_t kTestStream = 2;

constexpr int kSide = 28;
constexpr int kCell = 4;  // pixels along a square's side
constexpr int kGrid = kSide / kCell;
constexpr int kClasses = 10;
constexpr size_t kPixels = size_t{kSide} * kSide;
constexpr int kBytesPerBlock = 16;
static_assert(kPixels % kBytesPerBlock == 0);

// One bit per square.
uint64_t GridOf(uint64_t label) {
  return RandomStream(kSeed, label, kGridStream).Key();
}

int SignAt(uint64_t grid, int y, int x) {
  const int square = y / kCell * kGrid + x / kCell;
  return (grid >> square & 1) != 0 ? 1 : -1;
}

// Fills the image of (stream, index) and returns its label.
int32_t MakeImage(uint32_t stream, int64_t index, std::span<uint8_t> image) {
  const RandomStream random(kSeed, static_cast<uint64_t>(index), stream);
  const PhiloxBlock choice = random.Block(0);
  const auto label = static_cast<int32_t>(index % kClasses);
  const auto other = (static_cast<uint32_t>(label) + 1 + choice[0] % 9) % 10;
  const uint64_t grid = GridOf(static_cast<uint64_t>(label));
  const uint64_t other_grid = GridOf(other);
  const int contrast = 24 + static_cast<int>(choice[1] % 24);
  const int other_contrast = 8 + static_cast<int>(choice[2] % 16);
  const int shift_y = static_cast<int>(choice[3] % 3);
  const int shift_x = static_cast<int>(choice[3] / 3 % 3);

  PhiloxBlock noise{};
  for (int i = 0; i < static_cast<int>(kPixels); ++i) {
    const int y = i / kSide;
    const int x = i % kSide;
    const int lane = i % kBytesPerBlock;
    if (lane == 0) {
      noise = random.Block(static_cast<uint32_t>(1 + i / kBytesPerBlock));
    }
    const uint32_t word = noise[static_cast<size_t>(lane / 4)];
    const int jitter = static_cast<int>(word >> (8 * (lane % 4)) & 127) - 64;
    const int value =
        128 + jitter +
        contrast * SignAt(grid, (y + shift_y) % kSide, (x + shift_x) % kSide) +
        other_contrast * SignAt(other_grid, y, x);
    image[static_cast<size_t>(i)] =
        static_cast<uint8_t>(std::clamp(value, 0, 255));
  }
  return label;
}

class SyntheticDataset : public Dataset {
 public:
  static constexpr int64_t kTrainSize = 4096;
  static constexpr int64_t kTestSize = 1000;

  SyntheticDataset() : Dataset(MakeFacts()) {}

 private:
  static Facts MakeFacts() {
    // A sample's statistics are close enough to normalise by.
    PixelStatistics statistics;
    std::array<uint8_t, kPixels> image;
    for (int64_t index = 0; index < 256; ++index) {
      MakeImage(kTrainStream, index, image);
      statistics.Add(image);
    }
    return {.name = "synthetic",
            .spec = {1, kSide, kSide, kClasses},
            .train_size = kTrainSize,
            .test_size = kTestSize,
            .mean = {statistics.mean()},
            .stddev = {statistics.stddev()}};
  }

  Status ReadRecord(Split split, int64_t index, std::span<uint8_t> image,
                    int32_t* label) const override {
    *label = MakeImage(split == Split::kTrain ? kTrainStream : kTestStream,
                       index, image);
    return Status::Ok();
  }
};

}  // namespace

std::unique_ptr<Dataset> MakeSyntheticDataset() {
  return std::make_unique<SyntheticDataset>();
}

}  // namespace thimble
