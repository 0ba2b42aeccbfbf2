// SPDX-License-Identifier: Apache-2.0
//
// Where results of the forward pass or of the input's gradient go, for both:
// internal to the family.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/conv/conv.h"

namespace thimble::kernels::conv {

struct Sink {
  Tensor to;  // without data: only sums are wanted
  ConstTensor residual = ConstTensor::None();  // of the type of `to`
  bool moments = false;                        // mean and variance are wanted
  // With x: mask and sums, as in Conv2dGradInputTarget.
  ConstTensor x = ConstTensor::None();
  const float* scale = nullptr;
  const float* shift = nullptr;
  const float* mean = nullptr;
  const float* inv_std = nullptr;
  // With x and these: no sums, but what Conv2dNormGradTarget says.
  const BatchNormGradSums* known_sums = nullptr;
  double count = 0.0;  // of elements of a channel
  // [chunk][channel][2] of the whole batch, in shared scratch.
  float* partials = nullptr;

  bool reducing() const {
    return moments || (x.is_there() && known_sums == nullptr);
  }
  // Results can be written to `to` as they come.
  bool plain() const {
    return to.dtype() == DType::kF32 && !residual.is_there() && !moments &&
           !x.is_there();
  }
};

// Of one channel over part of the batch: count, mean and sum of squared
// deviations, or (count unused) the two sums.
struct Partial {
  double count = 0.0;
  double first = 0.0;
  double second = 0.0;

  // Chan, Golub & LeVeque: the union of two samples.
  void Merge(double n, double mean, double m2) {
    const double total = count + n;
    const double delta = mean - first;
    first += delta * (n / total);
    second += m2 + delta * delta * (count * n / total);
    count = total;
  }
};

// A chunk's results, [channel][2] in shared scratch.
inline void KeepPartials(const Partial* partials, int64_t channels, float* to) {
  for (int64_t c = 0; c < channels; ++c) {
    to[2 * c] = static_cast<float>(partials[c].first);
    to[2 * c + 1] = static_cast<float>(partials[c].second);
  }
}

// Images whose sums are kept together; an even number, if not one, because
// images may be worked on in pairs.
inline int64_t ChunkImages(int64_t pixels) {
  const int64_t images = kReductionPixels / std::max<int64_t>(1, pixels);
  return images <= 1 ? 1 : images / 2 * 2;
}

}  // namespace thimble::kernels::conv
