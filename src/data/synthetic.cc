// SPDX-License-Identifier: Apache-2.0
#include "data/synthetic.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/rng.h"
#include "data/pixel_statistics.h"

namespace thimble {
namespace {

constexpr uint64_t kSeed = 0x7468696D626C65;  // "thimble"
// Streams of kSeed: the grids (step = class, then class of the next channel),
// then the images (step = index).
constexpr uint32_t kGridStream = 0;
constexpr uint32_t kTrainStream = 1;
constexpr uint32_t kTestStream = 2;

constexpr int kCell = 4;  // pixels along a square's side
constexpr int kClasses = 10;
constexpr int kBytesPerBlock = 16;

struct Kind {
  const char* name;
  int channels;
  int side;
};
constexpr Kind kGrey = {"synthetic", 1, 28};
constexpr Kind kCifar = {"synthetic-cifar", 3, 32};

// One bit per square: 64 are enough for a side of 32.
class Grid {
 public:
  Grid(int side, uint32_t label, int channel)
      : side_(side),
        bits_(RandomStream(kSeed,
                           label + static_cast<uint64_t>(kClasses * channel),
                           kGridStream)
                  .Key()) {}

  int SignAt(int y, int x) const {
    const int square = y / kCell * (side_ / kCell) + x / kCell;
    return (bits_ >> square & 1) != 0 ? 1 : -1;
  }

 private:
  int side_;
  uint64_t bits_;
};

// Fills the image of (stream, index) and returns its label.
int32_t MakeImage(const Kind& kind, uint32_t stream, int64_t index,
                  std::span<uint8_t> image) {
  const RandomStream random(kSeed, static_cast<uint64_t>(index), stream);
  const PhiloxBlock choice = random.Block(0);
  const auto label = static_cast<uint32_t>(index % kClasses);
  const uint32_t other = (label + 1 + choice[0] % 9) % 10;
  const int contrast = 24 + static_cast<int>(choice[1] % 24);
  const int other_contrast = 8 + static_cast<int>(choice[2] % 16);
  const int shift_y = static_cast<int>(choice[3] % 3);
  const int shift_x = static_cast<int>(choice[3] / 3 % 3);

  const int side = kind.side;
  int i = 0;
  PhiloxBlock noise{};
  for (int channel = 0; channel < kind.channels; ++channel) {
    const Grid grid(side, label, channel);
    const Grid other_grid(side, other, channel);
    for (int y = 0; y < side; ++y) {
      for (int x = 0; x < side; ++x, ++i) {
        const int lane = i % kBytesPerBlock;
        if (lane == 0) {
          noise = random.Block(static_cast<uint32_t>(1 + i / kBytesPerBlock));
        }
        const uint32_t word = noise[static_cast<size_t>(lane / 4)];
        const int jitter =
            static_cast<int>(word >> (8 * (lane % 4)) & 127) - 64;
        const int value =
            128 + jitter +
            contrast * grid.SignAt((y + shift_y) % side, (x + shift_x) % side) +
            other_contrast * other_grid.SignAt(y, x);
        image[static_cast<size_t>(i)] =
            static_cast<uint8_t>(std::clamp(value, 0, 255));
      }
    }
  }
  return static_cast<int32_t>(label);
}

class SyntheticDataset : public Dataset {
 public:
  static constexpr int64_t kTrainSize = 4096;
  static constexpr int64_t kTestSize = 1000;

  explicit SyntheticDataset(const Kind& kind)
      : Dataset(MakeFacts(kind)), kind_(kind) {}

 private:
  static Facts MakeFacts(const Kind& kind) {
    const auto channels = static_cast<size_t>(kind.channels);
    const auto side = static_cast<size_t>(kind.side);
    const size_t plane = side * side;
    // A sample's statistics are close enough to normalise by.
    std::vector<PixelStatistics> statistics(channels);
    std::vector<uint8_t> image(channels * plane);
    for (int64_t index = 0; index < 256; ++index) {
      MakeImage(kind, kTrainStream, index, image);
      for (size_t c = 0; c < channels; ++c) {
        statistics[c].Add(std::span(image).subspan(c * plane, plane));
      }
    }
    Facts facts{.name = kind.name,
                .spec = {kind.channels, kind.side, kind.side, kClasses},
                .train_size = kTrainSize,
                .test_size = kTestSize,
                .mean = {},
                .stddev = {}};
    for (const PixelStatistics& channel : statistics) {
      facts.mean.push_back(channel.mean());
      facts.stddev.push_back(channel.stddev());
    }
    return facts;
  }

  Status ReadRecord(Split split, int64_t index, std::span<uint8_t> image,
                    int32_t* label) const override {
    *label =
        MakeImage(kind_, split == Split::kTrain ? kTrainStream : kTestStream,
                  index, image);
    return Status::Ok();
  }

  Kind kind_;
};

}  // namespace

std::unique_ptr<Dataset> MakeSyntheticDataset() {
  return std::make_unique<SyntheticDataset>(kGrey);
}

std::unique_ptr<Dataset> MakeSyntheticCifarDataset() {
  return std::make_unique<SyntheticDataset>(kCifar);
}

}  // namespace thimble
