// SPDX-License-Identifier: Apache-2.0
//
// Test only: the sums of dot/winograd.h by scalars, in the same order, so that
// kernels must agree with them to the bit.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/conv/conv.h"
#include "kernels/dot/reference.h"
#include "kernels/dot/winograd_pass.h"
#include "kernels/stored_tensor.h"

namespace thimble::kernels::dot {

using Four = std::array<float, 4>;
using Sixteen = std::array<float, 16>;      // 4x4 by rows
using Products = std::array<uint16_t, 16>;  // rounded to bf16

inline float Sum(float a, float b) { return Flushed(Flushed(a) + Flushed(b)); }
inline Products Rounded(const Sixteen& v) {
  Products bits;
  for (size_t i = 0; i < 16; ++i) bits[i] = Bf16Of(v[i]);
  return bits;
}
inline uint32_t PairOf(uint16_t low, uint16_t high) {
  return low | static_cast<uint32_t>(high) << 16;
}

// f for rows, then for columns, of what is n x n.
template <typename F>
Sixteen Transformed(size_t n, const float* v, const F& f) {
  Sixteen rows{}, result{};
  for (size_t j = 0; j < n; ++j) {
    const Four column = f(v[j], v[n + j], v[2 % n * n + j], v[(n - 1) * n + j]);
    for (size_t i = 0; i < 4; ++i) rows[4 * i + j] = column[i];
  }
  for (size_t i = 0; i < 4; ++i) {
    const float* r = &rows[4 * i];
    const Four row = f(r[0], r[1], r[2 % n], r[n - 1]);
    std::copy(row.begin(), row.end(), &result[4 * i]);
  }
  return result;
}
// B' x B, G w G' and A y A' (with 1 for -1 in A's last row).
inline Sixteen InputTransform(const float* x) {
  return Transformed(4, x, [](float a, float b, float c, float d) {
    return Four{Sum(a, -c), Sum(b, c), Sum(c, -b), Sum(b, -d)};
  });
}
inline Sixteen WeightTransform(const float* w) {
  return Transformed(3, w, [](float a, float b, float c, float) {
    const float sides = Sum(a, c);
    return Four{a, Flushed(0.5f * Sum(sides, b)),
                Flushed(0.5f * Sum(sides, -b)), c};
  });
}
inline Sixteen GradTransform(const float* y) {
  return Transformed(2, y, [](float a, float b, float, float) {
    return Four{a, Sum(a, b), Sum(a, -b), b};
  });
}

inline uint16_t BitsAt(const ConstTensor& t, int64_t i) {
  return t.halves(DType::kBF16)[i];
}

// What the convolution reads, zero outside.
inline float InputAt(const conv::StripGrid& grid, const Conv2dInput& input,
                     int64_t image, int64_t c, int64_t row, int64_t col) {
  if (row < 0 || row >= grid.height || col < 0 || col >= grid.width) return 0;
  const int64_t at =
      ((image * grid.channels + c) * grid.height + row) * grid.width + col;
  const float x = Bf16ToFloat(BitsAt(input.x, at));
  if (input.scale == nullptr) return x;
  const float u = FusedMulAdd(x, input.scale[c], input.shift[c]);
  return input.relu && u < 0.0f ? 0.0f : u;
}

// Of size x size pixels around tile `tile` of every image and channel, from
// `before` rows and columns before its first: [image][channel][tile].
template <typename F>
std::vector<Products> TransformedTiles(const conv::StripGrid& grid,
                                       const Conv2dInput& input, int64_t images,
                                       int64_t size, int64_t before,
                                       const F& transform) {
  const int64_t tiles = grid.height * grid.width / 4;
  std::vector<Products> result;
  result.reserve(static_cast<size_t>(images * grid.channels * tiles));
  for (int64_t i = 0; i < images * grid.channels * tiles; ++i) {
    const int64_t row = i % tiles / (grid.width / 2) * 2 - before;
    const int64_t col = i % tiles % (grid.width / 2) * 2 - before;
    const int64_t plane = i / tiles;
    float v[16];
    for (int64_t k = 0; k < size * size; ++k) {
      v[k] = InputAt(grid, input, plane / grid.channels, plane % grid.channels,
                     row + k / size, col + k % size);
    }
    result.push_back(Rounded(transform(v)));
  }
  return result;
}

// [output][channel] of a pass.
inline std::vector<Products> TransformedWeights(const WinogradPass& pass,
                                                const ConstTensor& w) {
  std::vector<Products> result;
  result.reserve(static_cast<size_t>(pass.outputs * pass.grid.channels));
  for (int64_t o = 0; o < pass.outputs; ++o) {
    for (int64_t c = 0; c < pass.grid.channels; ++c) {
      float taps[9];
      for (int64_t t = 0; t < 9; ++t) {
        taps[t] = Bf16ToFloat(BitsAt(w, o * pass.output_weights +
                                            c * pass.channel_weights +
                                            (pass.forward ? t : 8 - t)));
      }
      result.push_back(Rounded(WeightTransform(taps)));
    }
  }
  return result;
}

// The four pixels of a tile of one output: A' [sum over channels] A, chunks of
// channels and slices one after the other.
inline Four TileSums(const WinogradPass& pass, const Products* x,
                     int64_t channel_tiles, const Products* w) {
  Four y{};
  for (int64_t first = 0; first < pass.grid.channels; first += pass.chunk) {
    const int64_t end = std::min(first + pass.chunk, pass.grid.channels);
    for (size_t slice = 0; slice < 4; ++slice) {
      Four m{};
      for (size_t k = 0; k < 4; ++k) {
        for (int64_t c = first; c < end; c += 2) {
          const size_t at = 4 * slice + k;
          m[k] = DotOf(
              m[k],
              PairOf(x[c * channel_tiles][at], x[(c + 1) * channel_tiles][at]),
              PairOf(w[c][at], w[c + 1][at]));
        }
      }
      const float left = Sum(Sum(m[0], m[1]), m[2]);
      const float right = Sum(Sum(m[1], -m[2]), -m[3]);
      const bool is_set = first == 0;
      if (slice < 3) {
        y[0] = is_set && slice == 0 ? left : Sum(y[0], left);
        y[1] = is_set && slice == 0 ? right : Sum(y[1], right);
      }
      if (slice == 0) continue;
      const float sign = slice == 1 ? 1.0f : -1.0f;
      y[2] = is_set && slice == 1 ? left : Sum(y[2], sign * left);
      y[3] = is_set && slice == 1 ? right : Sum(y[3], sign * right);
    }
  }
  return y;
}

// The sums of a forward pass or of the input's gradient, before anything
// becomes of them.
inline std::vector<float> ModelSums(const WinogradPass& pass, int64_t images,
                                    const Conv2dInput& input,
                                    const ConstTensor& weights) {
  const conv::StripGrid& grid = pass.grid;
  const int64_t tiles = grid.height * grid.width / 4;
  const std::vector<Products> x =
      TransformedTiles(grid, input, images, 4, 1, InputTransform);
  const std::vector<Products> w = TransformedWeights(pass, weights);
  std::vector<float> y(static_cast<size_t>(images * pass.outputs * tiles * 4));
  for (int64_t plane = 0; plane < images * pass.outputs; ++plane) {
    for (int64_t t = 0; t < tiles; ++t) {
      const Four sums = TileSums(
          pass,
          &x[static_cast<size_t>(plane / pass.outputs * grid.channels * tiles +
                                 t)],
          tiles, &w[static_cast<size_t>(plane % pass.outputs * grid.channels)]);
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t row = t / (grid.width / 2) * 2 + i / 2;
        const int64_t col = t % (grid.width / 2) * 2 + i % 2;
        y[static_cast<size_t>((plane * grid.height + row) * grid.width + col)] =
            sums[static_cast<size_t>(i)];
      }
    }
  }
  return y;
}

// The gradient of the weights, [output][channel][9], before it is stored. Of
// transformed zeros, kernels may have those of the other sign: no sum sees that
// unless it was flushed to a zero itself.
inline std::vector<float> ModelWeightGrad(const Conv2dShape& shape,
                                          int64_t images, const Conv2dInput& x,
                                          const ConstTensor& grad_y) {
  const conv::StripGrid grid = {shape.in_channels, shape.in_height,
                                shape.in_width};
  const int64_t outputs = shape.out_channels;
  const int64_t tiles = grid.height * grid.width / 4;
  const std::vector<Products> v =
      TransformedTiles(grid, x, images, 4, 1, InputTransform);
  const std::vector<Products> d =
      TransformedTiles({outputs, grid.height, grid.width}, {.x = grad_y},
                       images, 2, 0, GradTransform);
  const auto fold = [](float a, float b, float c, float e) {
    const float sum = Flushed(0.5f * Sum(b, c));
    return Four{Sum(a, sum), Flushed(0.5f * Sum(b, -c)), Sum(sum, -e), 0.0f};
  };
  std::vector<float> grad;
  grad.reserve(static_cast<size_t>(outputs * grid.channels * 9));
  for (int64_t i = 0; i < outputs * grid.channels; ++i) {
    Sixteen sums{};
    for (size_t k = 0; k < 16; ++k) {
      for (int64_t t = 0; t < images * tiles; t += 2) {
        const auto at = static_cast<size_t>(
            (t / tiles * outputs + i / grid.channels) * tiles + t % tiles);
        const auto from = static_cast<size_t>(
            (t / tiles * grid.channels + i % grid.channels) * tiles +
            t % tiles);
        sums[k] = DotOf(sums[k], PairOf(d[at][k], d[at + 1][k]),
                        PairOf(v[from][k], v[from + 1][k]));
      }
    }
    // Columns first, as the kernel does.
    float rows[4][3];
    for (size_t r = 0; r < 4; ++r) {
      const float* s = &sums[4 * r];
      const Four taps = fold(s[0], s[1], s[2], s[3]);
      std::copy(taps.begin(), taps.begin() + 3, rows[r]);
    }
    float taps[9];
    for (size_t kw = 0; kw < 3; ++kw) {
      const Four column =
          fold(rows[0][kw], rows[1][kw], rows[2][kw], rows[3][kw]);
      for (size_t kh = 0; kh < 3; ++kh) taps[3 * kh + kw] = column[kh];
    }
    grad.insert(grad.end(), taps, taps + 9);
  }
  return grad;
}

}  // namespace thimble::kernels::dot
