// SPDX-License-Identifier: Apache-2.0
//
// The definition of sparse convolutions of bf16 by dot products: scalar, exact
// to the bit. Tensors are vectors of their values, weights are dense with a
// flag for what is kept; results are the f32 sums.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/conv/conv.h"
#include "kernels/dot/direct_reference.h"
#include "kernels/dot/product_reference.h"
#include "kernels/dot/reference.h"

namespace thimble::kernels::dot {

// [outputs, inputs, taps]
struct KeptWeights {
  std::vector<float> values;
  std::vector<bool> kept;
};

// A sum over kept weights, which are paired as they come; the last one, where
// their number is odd, with zeros.
class PairedSum {
 public:
  explicit PairedSum(float sum) : sum_(sum) {}
  void Add(float x, float w) {
    if (waits_) sum_ = DotStep(sum_, x_, w_, x, w);
    x_ = x;
    w_ = w;
    waits_ = !waits_;
  }
  float Sum() {
    if (waits_) Add(0.0f, 0.0f);
    return sum_;
  }

 private:
  float sum_, x_ = 0.0f, w_ = 0.0f;
  bool waits_ = false;
};

enum class Place { kBefore, kBehind, kHere };

// Sums of one output at one pixel: f(place, first, end, sum) adds what summed
// channels [first, end) give at a place.
template <typename F>
float SparseSumOf(int64_t channels, int64_t chunk, const F& f) {
  float all = 0.0f;
  for (int64_t first = 0; first < channels; first += chunk) {
    const int64_t end = std::min(channels, first + chunk);
    PairedSum before(0.0f), behind(0.0f);
    f(Place::kBefore, first, end, before);
    f(Place::kBehind, first, end, behind);
    const float so_far =
        first == 0 ? before.Sum() : FlushedSum(before.Sum(), all);
    PairedSum here(FlushedSum(behind.Sum(), so_far));
    f(Place::kHere, first, end, here);
    all = here.Sum();
  }
  return all;
}

inline std::vector<float> SparseForward(const Conv2dShape& s, int64_t images,
                                        const std::vector<float>& u,
                                        const KeptWeights& w, int64_t chunk) {
  const int64_t taps = s.kernel_h * s.kernel_w;
  const auto place_of = [&](int64_t kw) {
    if (s.kernel_w == 1 || kw == 1) return Place::kHere;
    return kw == 0 ? Place::kBefore : Place::kBehind;
  };
  std::vector<float> y;
  for (int64_t plane = 0; plane < images * s.out_channels; ++plane) {
    const PaddedImage x(u, plane / s.out_channels, s.in_channels, s.in_height,
                        s.in_width);
    const int64_t o = plane % s.out_channels;
    for (int64_t i = 0; i < s.out_height() * s.out_width(); ++i) {
      const int64_t row = i / s.out_width() * s.stride - s.padding;
      const int64_t col = i % s.out_width() * s.stride - s.padding;
      y.push_back(SparseSumOf(
          s.in_channels, chunk,
          [&](Place place, int64_t first, int64_t end, PairedSum& sum) {
            for (int64_t j = first * taps; j < end * taps; ++j) {
              const auto at = static_cast<size_t>(o * s.in_channels * taps + j);
              const int64_t kh = j % taps / s.kernel_w, kw = j % s.kernel_w;
              if (!w.kept[at] || place_of(kw) != place) continue;
              sum.Add(x.At(j / taps, row + kh, col + kw), w.values[at]);
            }
          }));
    }
  }
  return y;
}

// Only taps that meet the pixel are paired.
inline std::vector<float> SparseGradInput(const Conv2dShape& s, int64_t images,
                                          const std::vector<float>& grad_y,
                                          const KeptWeights& w, int64_t chunk) {
  const int64_t taps = s.kernel_h * s.kernel_w;
  const auto place_of = [&](int64_t kw) {
    if (s.kernel_w == 1 || kw == 1) return Place::kHere;
    if (kw == 0) return Place::kBehind;
    return s.stride == 1 ? Place::kBefore : Place::kHere;
  };
  std::vector<float> grad_x;
  for (int64_t plane = 0; plane < images * s.in_channels; ++plane) {
    const PaddedImage y(grad_y, plane / s.in_channels, s.out_channels,
                        s.out_height(), s.out_width());
    const int64_t c = plane % s.in_channels;
    for (int64_t i = 0; i < s.in_height * s.in_width; ++i) {
      const int64_t row = i / s.in_width + s.padding;
      const int64_t col = i % s.in_width + s.padding;
      grad_x.push_back(SparseSumOf(
          s.out_channels, chunk,
          [&](Place place, int64_t first, int64_t end, PairedSum& sum) {
            const int64_t count = end - first;
            for (int64_t j = 0; j < count * taps; ++j) {
              const int64_t o = first + j % count, t = j / count;
              const auto at =
                  static_cast<size_t>((o * s.in_channels + c) * taps + t);
              const int64_t h = row - t / s.kernel_w, v = col - t % s.kernel_w;
              if (!w.kept[at] || place_of(t % s.kernel_w) != place ||
                  h % s.stride != 0 || v % s.stride != 0) {
                continue;
              }
              const bool there = h >= 0 && v >= 0;
              sum.Add(there ? y.At(o, h / s.stride, v / s.stride) : 0.0f,
                      w.values[at]);
            }
          }));
    }
  }
  return grad_x;
}

// The sum of a tile's lanes (sparse_weight.h).
inline float LaneSum(const float (&l)[16]) {
  float q[4];
  for (int64_t k = 0; k < 4; ++k) {
    q[k] = FlushedSum(FlushedSum(l[4 * k], l[4 * k + 2]),
                      FlushedSum(l[4 * k + 1], l[4 * k + 3]));
  }
  return FlushedSum(FlushedSum(q[0], q[1]), FlushedSum(q[2], q[3]));
}

// Of positions in segments of `height` rows, so many side by side that they are
// 32 columns: at(segment, row, column) are grad_y and x there.
template <typename At>
float SparseTileSum(int64_t segments, int64_t height, int64_t cols,
                    const At& at) {
  float lanes[16] = {};
  for (int64_t r = 0; r < height; ++r) {
    for (int64_t p = 0; p < 32; p += 2) {
      if (p / cols >= segments) continue;
      const std::pair<float, float> first = at(p / cols, r, p % cols);
      const std::pair<float, float> second = at(p / cols, r, p % cols + 1);
      lanes[p / 2] = DotStep(lanes[p / 2], first.first, first.second,
                             second.first, second.second);
    }
  }
  return LaneSum(lanes);
}

// Tiles of `height` rows; zeros where nothing is kept.
inline std::vector<float> SparseGradWeight(const Conv2dShape& s, int64_t images,
                                           const std::vector<float>& u,
                                           const std::vector<float>& grad_y,
                                           const std::vector<bool>& kept,
                                           int64_t height) {
  const int64_t taps = s.kernel_h * s.kernel_w, cols = s.out_width();
  const int64_t bands = s.out_height() / height, side = 32 / cols;
  std::vector<float> grad_w(kept.size());
  for (size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i]) continue;
    const auto weight = static_cast<int64_t>(i);
    const int64_t o = weight / taps / s.in_channels;
    const int64_t c = weight / taps % s.in_channels, tap = weight % taps;
    for (int64_t first = 0; first < images * bands; first += side) {
      const int64_t left = std::min(side, images * bands - first);
      const int64_t parts = height == 8 && 2 * left <= side ? 2 : 1;
      const auto at = [&](int64_t g, int64_t r, int64_t col) {
        const int64_t segment = first + g / parts;
        const int64_t row =
            segment % bands * height + g % parts * (height / parts) + r;
        // Where x lies one before or behind, it is grad_y that moves.
        const int64_t kw = s.kernel_w == 1 ? 1 : tap % s.kernel_w;
        const int64_t by = kw == 0 ? 1 : (kw == 2 && s.stride == 1 ? -1 : 0);
        const int64_t v = col + by;
        if (v < 0 || v >= cols) return std::pair(0.0f, 0.0f);
        const PaddedImage x(u, segment / bands, s.in_channels, s.in_height,
                            s.in_width);
        const PaddedImage y(grad_y, segment / bands, s.out_channels,
                            s.out_height(), s.out_width());
        return std::pair(y.At(o, row, v),
                         x.At(c, row * s.stride - s.padding + tap / s.kernel_w,
                              v * s.stride - s.padding + tap % s.kernel_w));
      };
      grad_w[i] = FlushedSum(
          grad_w[i], SparseTileSum(parts * left, height / parts, cols, at));
    }
  }
  return grad_w;
}

}  // namespace thimble::kernels::dot
