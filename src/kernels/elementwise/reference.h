// SPDX-License-Identifier: Apache-2.0
//
// The definition of the elementwise kernels: scalar, for any element type T
// (float, double, std::complex<double> where the function is analytic).
#pragma once

#include <cstdint>

#include "base/rng.h"
#include "kernels/elementwise/elementwise.h"

namespace thimble::kernels::reference {

template <typename T>
void Add(int64_t n, const T* a, const T* b, T* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

template <typename T>
void Relu(int64_t n, const T* x, T* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] < T(0) ? T(0) : x[i];
}

template <typename T>
void ReluGradFromOutput(int64_t n, const T* y, const T* grad_y, T* grad_x) {
  for (int64_t i = 0; i < n; ++i) grad_x[i] = y[i] > T(0) ? grad_y[i] : T(0);
}

template <typename T>
void ReluMask(int64_t n, const T* x, uint8_t* mask) {
  for (int64_t byte = 0; byte < (n + 7) / 8; ++byte) mask[byte] = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (x[i] > T(0)) {
      mask[i / 8] = static_cast<uint8_t>(mask[i / 8] | (1u << (i % 8)));
    }
  }
}

template <typename T>
void ReluGradFromMask(int64_t n, const uint8_t* mask, const T* grad_y,
                      T* grad_x) {
  for (int64_t i = 0; i < n; ++i) {
    grad_x[i] = ((mask[i / 8] >> (i % 8)) & 1) != 0 ? grad_y[i] : T(0);
  }
}

// Whether element `element` of image `image` of a step is kept.
inline bool DropoutKeeps(const DropoutMask& mask, int64_t image,
                         int64_t elements, int64_t element) {
  constexpr auto kBlocks = static_cast<int64_t>(kDropoutBlocks);
  constexpr auto kGroup = static_cast<int64_t>(kDropoutGroup);
  const int64_t groups = (elements + kGroup - 1) / kGroup;
  const int64_t block = (image * groups + element / kGroup) * kBlocks;
  const PhiloxBlock bits =
      RandomStream(mask.seed, mask.step, mask.stream)
          .Block(static_cast<uint32_t>(block + element % kBlocks));
  const auto word = static_cast<size_t>(element % kGroup / kBlocks);
  return UniformFromBits(bits[word]) >= mask.rate;
}

template <typename T>
void Dropout(int64_t images, int64_t elements, const DropoutMask& mask,
             const T* x, T* y) {
  for (int64_t i = 0; i < images; ++i) {
    for (int64_t k = 0; k < elements; ++k, ++x, ++y) {
      *y = DropoutKeeps(mask, mask.first + i, elements, k)
               ? *x * T(mask.scale())
               : T(0);
    }
  }
}

template <typename T>
void NormalizeU8(int64_t images, int64_t channels, int64_t pixels,
                 const uint8_t* x, const T* scale, const T* shift, T* y) {
  for (int64_t i = 0; i < images; ++i) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t p = 0; p < pixels; ++p, ++x, ++y) {
        *y = T(*x) * scale[c] + shift[c];
      }
    }
  }
}

template <typename T>
void NormalizeU8Slice(int64_t images, int64_t channels, int64_t pixels,
                      int64_t begin, int64_t count, const uint8_t* x,
                      const T* scale, const T* shift, T* y) {
  for (int64_t i = 0; i < images; ++i) {
    for (int64_t k = begin; k < begin + count; ++k, ++y) {
      const int64_t c = k / pixels;
      *y = T(x[i * channels * pixels + k]) * scale[c] + shift[c];
    }
  }
}

template <typename T>
void BiasAdd(int64_t images, int64_t channels, int64_t pixels, const T* x,
             const T* bias, T* y) {
  for (int64_t i = 0; i < images; ++i) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t p = 0; p < pixels; ++p, ++x, ++y) *y = *x + bias[c];
    }
  }
}

template <typename T>
void BiasGrad(int64_t images, int64_t channels, int64_t pixels, const T* grad_y,
              T* grad_bias) {
  for (int64_t c = 0; c < channels; ++c) grad_bias[c] = T(0);
  for (int64_t i = 0; i < images; ++i) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t p = 0; p < pixels; ++p, ++grad_y) grad_bias[c] += *grad_y;
    }
  }
}

}  // namespace thimble::kernels::reference
