// SPDX-License-Identifier: Apache-2.0
//
// The definition of pooling: scalar, for any element type T (the averages also
// for std::complex<double>).
#pragma once

#include <cstdint>

#include "kernels/pool/pool.h"

namespace thimble::kernels::reference {

// Calls visit(output index, input index, place in the window) for every input
// under every window, outputs and places in index order.
template <typename F>
void ForEachWindow(const PoolShape& s, int64_t images, const F& visit) {
  int64_t out = 0;
  for (int64_t plane = 0; plane < images * s.channels; ++plane) {
    for (int64_t oh = 0; oh < s.out_height(); ++oh) {
      for (int64_t ow = 0; ow < s.out_width(); ++ow, ++out) {
        for (int64_t place = 0; place < s.kernel * s.kernel; ++place) {
          const int64_t h = oh * s.stride - s.padding + place / s.kernel;
          const int64_t w = ow * s.stride - s.padding + place % s.kernel;
          if (h < 0 || h >= s.height || w < 0 || w >= s.width) continue;
          visit(out, (plane * s.height + h) * s.width + w, place);
        }
      }
    }
  }
}

inline int64_t OutputSize(const PoolShape& s, int64_t images) {
  return images * s.channels * s.out_height() * s.out_width();
}
inline int64_t InputSize(const PoolShape& s, int64_t images) {
  return images * s.channels * s.height * s.width;
}

template <typename T>
void MaxPool(const PoolShape& shape, int64_t images, const T* x, T* y,
             uint8_t* winner) {
  int64_t started = -1;  // the last output that has a first candidate
  ForEachWindow(shape, images, [&](int64_t out, int64_t in, int64_t place) {
    if (out == started) {
      const bool larger = x[in] > y[out];
      const bool first_nan = x[in] != x[in] && y[out] == y[out];
      if (!larger && !first_nan) return;
    }
    started = out;
    y[out] = x[in];
    winner[out] = static_cast<uint8_t>(place);
  });
}

template <typename T>
void MaxPoolGrad(const PoolShape& shape, int64_t images, const uint8_t* winner,
                 const T* grad_y, T* grad_x) {
  for (int64_t i = 0; i < InputSize(shape, images); ++i) grad_x[i] = T(0);
  ForEachWindow(shape, images, [&](int64_t out, int64_t in, int64_t place) {
    if (winner[out] == place) grad_x[in] += grad_y[out];
  });
}

template <typename T>
void AveragePool(const PoolShape& shape, int64_t images, const T* x, T* y) {
  const T area = T(static_cast<double>(shape.kernel * shape.kernel));
  for (int64_t i = 0; i < OutputSize(shape, images); ++i) y[i] = T(0);
  ForEachWindow(shape, images,
                [&](int64_t out, int64_t in, int64_t) { y[out] += x[in]; });
  for (int64_t i = 0; i < OutputSize(shape, images); ++i) y[i] /= area;
}

template <typename T>
void AveragePoolGrad(const PoolShape& shape, int64_t images, const T* grad_y,
                     T* grad_x) {
  const T area = T(static_cast<double>(shape.kernel * shape.kernel));
  for (int64_t i = 0; i < InputSize(shape, images); ++i) grad_x[i] = T(0);
  ForEachWindow(shape, images, [&](int64_t out, int64_t in, int64_t) {
    grad_x[in] += grad_y[out] / area;
  });
}

template <typename T>
void GlobalAveragePool(int64_t images, int64_t channels, int64_t pixels,
                       const T* x, T* y) {
  for (int64_t plane = 0; plane < images * channels; ++plane) {
    T sum = T(0);
    for (int64_t p = 0; p < pixels; ++p) sum += x[plane * pixels + p];
    y[plane] = sum / T(static_cast<double>(pixels));
  }
}

template <typename T>
void GlobalAveragePoolGrad(int64_t images, int64_t channels, int64_t pixels,
                           const T* grad_y, T* grad_x) {
  for (int64_t i = 0; i < images * channels * pixels; ++i) {
    grad_x[i] = grad_y[i / pixels] / T(static_cast<double>(pixels));
  }
}

}  // namespace thimble::kernels::reference
