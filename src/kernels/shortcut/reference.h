// SPDX-License-Identifier: Apache-2.0
//
// The definition of the shortcut: scalar, for any element type T.
#pragma once

#include <cstdint>

#include "kernels/shortcut/shortcut.h"

namespace thimble::kernels::reference {

// Calls visit(output index, input index) for every output that has an input,
// and visit(output index, -1) for those in channels of zeros.
template <typename F>
void ForEachShortcut(const ShortcutShape& s, int64_t images, const F& visit) {
  int64_t out = 0;
  for (int64_t i = 0; i < images; ++i) {
    for (int64_t c = 0; c < s.out_channels; ++c) {
      for (int64_t h = 0; h < s.out_height(); ++h) {
        for (int64_t w = 0; w < s.out_width(); ++w, ++out) {
          const int64_t row = (i * s.in_channels + c) * s.height + h * s.stride;
          visit(out, c < s.in_channels ? row * s.width + w * s.stride : -1);
        }
      }
    }
  }
}

template <typename T>
void Shortcut(const ShortcutShape& shape, int64_t images, const T* x, T* y) {
  ForEachShortcut(shape, images, [&](int64_t out, int64_t in) {
    y[out] = in < 0 ? T(0) : x[in];
  });
}

template <typename T>
void ShortcutGrad(const ShortcutShape& shape, int64_t images, const T* grad_y,
                  T* grad_x) {
  const int64_t size = images * shape.in_channels * shape.height * shape.width;
  for (int64_t i = 0; i < size; ++i) grad_x[i] = T(0);
  ForEachShortcut(shape, images, [&](int64_t out, int64_t in) {
    if (in >= 0) grad_x[in] = grad_y[out];
  });
}

}  // namespace thimble::kernels::reference
