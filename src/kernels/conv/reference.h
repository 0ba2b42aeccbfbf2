// SPDX-License-Identifier: Apache-2.0
//
// The definition of the convolution and its gradients: scalar, for any element
// type T (float, double, std::complex<double>).
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>

#include "kernels/conv/conv.h"

namespace thimble::kernels::reference {

// Calls body(x index, w index, y index) for every product that the convolution
// sums up; the padding's zeros take part in none.
template <typename F>
void ForEachConv2dProduct(const Conv2dShape& s, int64_t images, const F& body) {
  const int64_t height = s.out_height();
  const int64_t width = s.out_width();
  for (int64_t i = 0; i < images; ++i) {
    for (int64_t o = 0; o < s.out_channels; ++o) {
      for (int64_t h = 0; h < height; ++h) {
        for (int64_t w = 0; w < width; ++w) {
          const int64_t y = ((i * s.out_channels + o) * height + h) * width + w;
          for (int64_t c = 0; c < s.in_channels; ++c) {
            for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
              const int64_t row = h * s.stride + kh - s.padding;
              if (row < 0 || row >= s.in_height) continue;
              for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
                const int64_t col = w * s.stride + kw - s.padding;
                if (col < 0 || col >= s.in_width) continue;
                const int64_t plane = i * s.in_channels + c;
                const int64_t tap = o * s.in_channels + c;
                body((plane * s.in_height + row) * s.in_width + col,
                     (tap * s.kernel_h + kh) * s.kernel_w + kw, y);
              }
            }
          }
        }
      }
    }
  }
}

template <typename T>
void Conv2dForward(const Conv2dShape& s, int64_t images, const T* x, const T* w,
                   T* y) {
  std::fill_n(y, images * s.out_channels * s.out_height() * s.out_width(),
              T(0));
  ForEachConv2dProduct(s, images, [&](int64_t xi, int64_t wi, int64_t yi) {
    y[yi] += x[xi] * w[wi];
  });
}

template <typename T>
void Conv2dGradInput(const Conv2dShape& s, int64_t images, const T* grad_y,
                     const T* w, T* grad_x) {
  std::fill_n(grad_x, images * s.in_channels * s.in_height * s.in_width, T(0));
  ForEachConv2dProduct(s, images, [&](int64_t xi, int64_t wi, int64_t yi) {
    grad_x[xi] += grad_y[yi] * w[wi];
  });
}

template <typename T>
void Conv2dGradWeight(const Conv2dShape& s, int64_t images, const T* x,
                      const T* grad_y, T* grad_w) {
  std::fill_n(grad_w, s.out_channels * s.in_channels * s.kernel_h * s.kernel_w,
              T(0));
  ForEachConv2dProduct(s, images, [&](int64_t xi, int64_t wi, int64_t yi) {
    grad_w[wi] += grad_y[yi] * x[xi];
  });
}

// ---- Fused forms

// Zero where the real part is not positive: relu, also for a complex step.
template <typename T>
T Relu(const T& u) {
  return std::real(u) > 0 ? u : T(0);
}

// What the convolution reads of x, `pixels` of each of `channels` channels.
template <typename T>
void Conv2dPrologue(int64_t images, int64_t channels, int64_t pixels,
                    const T* x, const T* scale, const T* shift, bool relu,
                    T* u) {
  for (int64_t i = 0; i < images * channels * pixels; ++i) {
    const int64_t c = i / pixels % channels;
    u[i] = x[i] * scale[c] + shift[c];
    if (relu) u[i] = Relu(u[i]);
  }
}

// Mean and biased variance of each channel.
template <typename T>
void Conv2dStatistics(int64_t images, int64_t channels, int64_t pixels,
                      const T* y, T* mean, T* variance) {
  const T count = T(static_cast<double>(images * pixels));
  for (int64_t c = 0; c < channels; ++c) mean[c] = variance[c] = T(0);
  const auto channel = [&](int64_t i) { return i / pixels % channels; };
  for (int64_t i = 0; i < images * channels * pixels; ++i) {
    mean[channel(i)] += y[i] / count;
  }
  for (int64_t i = 0; i < images * channels * pixels; ++i) {
    const T off = y[i] - mean[channel(i)];
    variance[channel(i)] += off * off / count;
  }
}

// grad becomes its part that goes through relu(x * scale + shift).
template <typename T>
void Conv2dMask(int64_t images, int64_t channels, int64_t pixels, const T* x,
                const T* scale, const T* shift, T* grad) {
  for (int64_t i = 0; i < images * channels * pixels; ++i) {
    const int64_t c = i / pixels % channels;
    if (!(std::real(x[i] * scale[c] + shift[c]) > 0)) grad[i] = T(0);
  }
}

// Sums of grad and of grad * (x - mean) * inv_std.
template <typename T>
void Conv2dNormSums(int64_t images, int64_t channels, int64_t pixels,
                    const T* grad, const T* x, const T* mean, const T* inv_std,
                    T* grad_gamma, T* grad_beta) {
  for (int64_t c = 0; c < channels; ++c) grad_gamma[c] = grad_beta[c] = T(0);
  for (int64_t i = 0; i < images * channels * pixels; ++i) {
    const int64_t c = i / pixels % channels;
    grad_beta[c] += grad[i];
    grad_gamma[c] += grad[i] * (x[i] - mean[c]) * inv_std[c];
  }
}

}  // namespace thimble::kernels::reference
