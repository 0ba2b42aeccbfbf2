// SPDX-License-Identifier: Apache-2.0
//
// The one place where the coefficients of a normalisation are computed, so that
// all ways to apply them agree to the bit. Internal to the family.
#pragma once

#include <cmath>

namespace thimble::kernels::norm {

struct Coefficients {
  float scale;
  float shift;
  float inv_std;
};

// The shift is that of the rounded scale: x = mean gives beta.
inline Coefficients CoefficientsOf(float epsilon, float mean, float variance,
                                   float gamma, float beta) {
  const double inverse =
      1.0 / std::sqrt(static_cast<double>(variance) + epsilon);
  const auto scale = static_cast<float>(gamma * inverse);
  const auto shift =
      static_cast<float>(beta - mean * static_cast<double>(scale));
  return {scale, shift, static_cast<float>(inverse)};
}

}  // namespace thimble::kernels::norm
