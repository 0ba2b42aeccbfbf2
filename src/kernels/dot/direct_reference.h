// SPDX-License-Identifier: Apache-2.0
//
// The definition of direct convolutions of bf16 by dot products: scalar, exact
// to the bit. Tensors are vectors of their values; results are the f32 sums.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/conv/conv.h"
#include "kernels/dot/product_reference.h"
#include "kernels/dot/reference.h"

namespace thimble::kernels::dot {

// What the convolution reads: x, or x * scale + shift with or without relu, in
// bf16.
inline std::vector<float> DirectInput(const Conv2dShape& s, int64_t images,
                                      std::vector<float> x, const float* scale,
                                      const float* shift, bool relu) {
  if (scale == nullptr) return x;
  const int64_t pixels = s.in_height * s.in_width;
  for (int64_t i = 0; i < images * s.in_channels * pixels; ++i) {
    const int64_t c = i / pixels % s.in_channels;
    float& value = x[static_cast<size_t>(i)];
    value = FusedMulAdd(value, scale[c], shift[c]);
    if (relu && value < 0.0f) value = 0.0f;
    value = Bf16ToFloat(Bf16Of(value));
  }
  return x;
}

// Channels of one image, with zeros around its pixels and behind its channels.
class PaddedImage {
 public:
  PaddedImage(const std::vector<float>& values, int64_t image, int64_t channels,
              int64_t height, int64_t width)
      : values_(values),
        first_(image * channels),
        channels_(channels),
        height_(height),
        width_(width) {}
  float At(int64_t channel, int64_t row, int64_t col) const {
    if (channel >= channels_ || row < 0 || row >= height_ || col < 0 ||
        col >= width_) {
      return 0.0f;
    }
    return values_[static_cast<size_t>(
        ((first_ + channel) * height_ + row) * width_ + col)];
  }

 private:
  const std::vector<float>& values_;
  int64_t first_, channels_, height_, width_;
};

// Weight (o, c, tap), or zero past the last output or channel.
inline float WeightAt(const Conv2dShape& s, const std::vector<float>& w,
                      int64_t o, int64_t c, int64_t tap) {
  if (o >= s.out_channels || c >= s.in_channels) return 0.0f;
  const int64_t taps = s.kernel_h * s.kernel_w;
  return w[static_cast<size_t>((o * s.in_channels + c) * taps + tap)];
}

// Pairs of channels, in each all taps in index order.
inline std::vector<float> DirectForward(const Conv2dShape& s, int64_t images,
                                        const std::vector<float>& u,
                                        const std::vector<float>& w) {
  std::vector<float> y;
  y.reserve(static_cast<size_t>(images * s.out_channels * s.out_height() *
                                s.out_width()));
  for (int64_t index = 0; index < images * s.out_channels; ++index) {
    const PaddedImage x(u, index / s.out_channels, s.in_channels, s.in_height,
                        s.in_width);
    const int64_t o = index % s.out_channels;
    for (int64_t i = 0; i < s.out_height() * s.out_width(); ++i) {
      const int64_t row = i / s.out_width() * s.stride - s.padding;
      const int64_t col = i % s.out_width() * s.stride - s.padding;
      float sum = 0.0f;
      for (int64_t c = 0; c < s.in_channels; c += 2) {
        for (int64_t t = 0; t < s.kernel_h * s.kernel_w; ++t) {
          const int64_t h = row + t / s.kernel_w, v = col + t % s.kernel_w;
          sum = DotStep(sum, x.At(c, h, v), WeightAt(s, w, o, c, t),
                        x.At(c + 1, h, v), WeightAt(s, w, o, c + 1, t));
        }
      }
      y.push_back(sum);
    }
  }
  return y;
}

// Pairs of outputs, in each the taps that meet the pixel.
inline std::vector<float> DirectGradInput(const Conv2dShape& s, int64_t images,
                                          const std::vector<float>& grad_y,
                                          const std::vector<float>& w) {
  std::vector<float> grad_x;
  grad_x.reserve(
      static_cast<size_t>(images * s.in_channels * s.in_height * s.in_width));
  for (int64_t index = 0; index < images * s.in_channels; ++index) {
    const PaddedImage y(grad_y, index / s.in_channels, s.out_channels,
                        s.out_height(), s.out_width());
    const int64_t c = index % s.in_channels;
    for (int64_t i = 0; i < s.in_height * s.in_width; ++i) {
      const int64_t row = i / s.in_width + s.padding;
      const int64_t col = i % s.in_width + s.padding;
      float sum = 0.0f;
      for (int64_t o = 0; o < s.out_channels; o += 2) {
        for (int64_t t = 0; t < s.kernel_h * s.kernel_w; ++t) {
          const int64_t h = row - t / s.kernel_w, v = col - t % s.kernel_w;
          if (h % s.stride != 0 || v % s.stride != 0) continue;
          sum = DotStep(sum, y.At(o, h / s.stride, v / s.stride),
                        WeightAt(s, w, o, c, t),
                        y.At(o + 1, h / s.stride, v / s.stride),
                        WeightAt(s, w, o + 1, c, t));
        }
      }
      grad_x.push_back(sum);
    }
  }
  return grad_x;
}

// A partial sum over rows [row, row + rows) of some images: pairs of
// neighbouring positions, over row ends. `sum` is what images before gave.
inline float DirectWeightPart(const Conv2dShape& s, const PaddedImage& x,
                              const PaddedImage& grad_y, int64_t weight,
                              int64_t row, int64_t rows, float sum) {
  const int64_t taps = s.kernel_h * s.kernel_w, tap = weight % taps;
  const int64_t c = weight / taps % s.in_channels;
  const int64_t o = weight / taps / s.in_channels;
  const int64_t first = row * s.out_width();
  const int64_t end = (row + rows) * s.out_width();
  const auto x_at = [&](int64_t i) {
    return x.At(c, i / s.out_width() * s.stride - s.padding + tap / s.kernel_w,
                i % s.out_width() * s.stride - s.padding + tap % s.kernel_w);
  };
  const auto y_at = [&](int64_t i) {
    return grad_y.At(o, i / s.out_width(), i % s.out_width());
  };
  for (int64_t i = first; i < end; i += 2) {
    const bool whole = i + 1 < end;
    sum = DotStep(sum, y_at(i), x_at(i), whole ? y_at(i + 1) : 0.0f,
                  whole ? x_at(i + 1) : 0.0f);
  }
  return sum;
}

// Sums of `step` images, or of `block_rows` rows of one, one after the other.
inline std::vector<float> DirectGradWeight(const Conv2dShape& s, int64_t images,
                                           const std::vector<float>& u,
                                           const std::vector<float>& grad_y,
                                           int64_t step, int64_t block_rows) {
  const int64_t count =
      s.out_channels * s.in_channels * s.kernel_h * s.kernel_w;
  std::vector<float> grad_w(static_cast<size_t>(count));
  for (int64_t image = 0; image < images; image += step) {
    for (int64_t row = 0; row < s.out_height(); row += block_rows) {
      const int64_t rows = std::min(block_rows, s.out_height() - row);
      for (int64_t weight = 0; weight < count; ++weight) {
        float part = 0.0f;
        for (int64_t i = image; i < std::min(images, image + step); ++i) {
          part = DirectWeightPart(
              s, {u, i, s.in_channels, s.in_height, s.in_width},
              {grad_y, i, s.out_channels, s.out_height(), s.out_width()},
              weight, row, rows, part);
        }
        float& sum = grad_w[static_cast<size_t>(weight)];
        sum = FlushedSum(sum, part);
      }
    }
  }
  return grad_w;
}

}  // namespace thimble::kernels::dot
