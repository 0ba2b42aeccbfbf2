// SPDX-License-Identifier: Apache-2.0
//
// Where the gradient of a weight goes. A kernel that makes one has f32 sums of
// some of its elements at a time. Three things can be done with them:
//
// - stored, or added to what is there, element by element, where the gradient
//   is f32, f16 or bf16: the kernel does it itself, in any order of elements;
// - handed to a PieceSink, which stores or adds them in blocks (StoredSink), or
//   does something else with them, such as to bring the optimizer's state up to
//   date, so that there is no buffer of the gradient at all (GradFold).
//
// Elements of a block are encoded together, and random numbers are drawn for
// blocks. So pieces are whole blocks, but for the tensor's last one, and one
// thread has all sums of a piece: GradRegions says how to share out the work.
// Sinks may be used by all threads of a pool at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "kernels/context.h"
#include "kernels/random.h"
#include "kernels/tensor.h"

namespace thimble::kernels {

class PieceSink {
 public:
  virtual ~PieceSink() = default;
  // The sums of elements [first, first + n), which it may change. Each element
  // is handed over once in a call of a kernel, by any thread. REQUIRES: first
  // is a multiple of ConstTensor::kBlock, and so is n or first + n is the end.
  virtual void Take(int64_t first, int64_t n, float* sums) const = 0;
};

// Stores sums, or addend + sums, as f32, f16, bf16 or in blocks; blocks are
// rounded by chance, the others to nearest even. Sums that are not finite make
// a block of NaNs.
class StoredSink final : public PieceSink {
 public:
  // `addend` is None, or of the storage of `to`, and may be `to`.
  StoredSink(Tensor to, ConstTensor addend, const RandomAddress& random)
      : to_(to), addend_(addend), random_(random) {}
  void Take(int64_t first, int64_t n, float* sums) const override;

 private:
  Tensor to_;
  ConstTensor addend_;
  RandomAddress random_;
};

// Hands all of a tensor over, whatever its storage.
void HandOver(int64_t n, ConstTensor from, const PieceSink& sink,
              const KernelContext& context);

// Takes the pieces of a gradient that is not stored. An op may make its
// gradient in several calls of a kernel, which are numbered from 0.
class GradFold {
 public:
  virtual ~GradFold() = default;
  virtual void Fold(int64_t call, int64_t first, int64_t n,
                    float* sums) const = 0;
};

// A rectangle of a gradient [outputs, row].
struct GradRegion {
  int64_t first_output, outputs;
  int64_t first_column, columns;
};

// A gradient [outputs, row] cut into regions whose sums are whole blocks: a
// part of the columns, where rows are whole blocks, else whole rows. Columns
// are cut at multiples of `unit` only (the taps of a channel). A pure function
// of the shape. Example: [128, 128 * 9] is cut into 8 times 2 regions of 16
// outputs and 64 channels; [16, 3 * 9] is one region, since only 64 rows of 27
// are whole blocks.
class GradRegions {
 public:
  GradRegions(int64_t outputs, int64_t row, int64_t unit)
      : outputs_(outputs), row_(row), columns_(row) {
    constexpr int64_t kBlock = ConstTensor::kBlock;
    const int64_t least = std::lcm(kBlock, unit);
    const int64_t part = (kWantedColumns + least - 1) / least * least;
    if (row % kBlock == 0) columns_ = std::min(row, part);
    // Two regions, where there are few outputs, are work for two threads.
    int64_t high =
        outputs <= kWantedOutputs ? kWantedOutputs / 2 : kWantedOutputs;
    while (high > 1 && high * columns_ > kMostFloats) high /= 2;
    const int64_t whole = kBlock / std::gcd(kBlock, columns_);
    high_ = std::min(outputs, (high + whole - 1) / whole * whole);
  }

  int64_t count() const { return Across() * Down(); }
  GradRegion At(int64_t index) const {
    const int64_t output = index / Across() * high_;
    const int64_t column = index % Across() * columns_;
    return {output, std::min(high_, outputs_ - output), column,
            std::min(columns_, row_ - column)};
  }
  // Of the largest region.
  int64_t outputs() const { return high_; }
  int64_t columns() const { return columns_; }
  int64_t Floats() const { return high_ * columns_; }

  // Hands a region's sums, row by row without gaps, to the sink.
  void Hand(const GradRegion& region, float* sums,
            const PieceSink& sink) const {
    const int64_t first = region.first_output * row_ + region.first_column;
    if (region.columns == row_) {
      sink.Take(first, region.outputs * row_, sums);
      return;
    }
    for (int64_t o = 0; o < region.outputs; ++o) {
      sink.Take(first + o * row_, region.columns, sums + o * region.columns);
    }
  }

 private:
  static constexpr int64_t kWantedColumns = 512;
  static constexpr int64_t kWantedOutputs = 16;
  static constexpr int64_t kMostFloats = int64_t{10} * 1024;

  int64_t Across() const { return (row_ + columns_ - 1) / columns_; }
  int64_t Down() const { return (outputs_ + high_ - 1) / high_; }

  int64_t outputs_, row_;
  int64_t columns_ = 0;
  int64_t high_ = 0;
};

}  // namespace thimble::kernels
