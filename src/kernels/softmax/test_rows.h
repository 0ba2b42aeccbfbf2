// SPDX-License-Identifier: Apache-2.0
//
// Test only: rows of logits with labels, and what the loss and its gradient may
// be off by in f32.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/softmax/reference.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels::testing {

// Half of the distance between f32 numbers, beside a number.
inline constexpr double kUnit = std::numeric_limits<float>::epsilon() / 2;

// Logits in [−spread, spread) and labels, of which about half are the row's
// largest.
struct Rows {
  Rows(int64_t row_count, int64_t class_count, float spread, size_t misalign)
      : rows(row_count),
        classes(class_count),
        logits(static_cast<size_t>(rows * classes), misalign),
        labels(static_cast<size_t>(rows), misalign) {
    for (size_t i = 0; i < logits.size(); ++i) {
      logits[i] = spread * TestValue(1, i);
    }
    ChooseLabels();
  }
  // Stores the logits; they become what was stored.
  void StoreAs(StoredTensor& stored) {
    for (size_t i = 0; i < logits.size(); ++i) {
      stored.Set(i, logits[i]);
      logits[i] = static_cast<float>(stored.Get(i));
    }
    ChooseLabels();
  }
  void ChooseLabels() {
    for (size_t r = 0; r < labels.size(); ++r) {
      const auto at = static_cast<int64_t>(r) * classes;
      labels[r] = static_cast<int32_t>(
          r % 2 == 0 ? reference::FirstLargest(classes, logits.data() + at)
                     : static_cast<int64_t>(r * 7) % classes);
    }
    wide.assign(logits.data(), logits.data() + logits.size());
  }
  int64_t rows;
  int64_t classes;
  GuardedBuffer<float> logits;
  GuardedBuffer<int32_t> labels;
  std::vector<double> wide;

  const double* row(int64_t r) const { return wide.data() + r * classes; }
  double Top(int64_t r) const {
    return row(r)[reference::FirstLargest(classes, row(r))];
  }

  // The relative error of exp(x − largest) in f32: the difference is rounded
  // once, which exp turns into a relative error; Highway documents exp to
  // 1 ulp beside the rounded value, hence 1.5 ulp ≤ 3 units beside the exact.
  static double ExpError(double logit, double top) {
    return kUnit * (std::fabs(logit - top) + 3.0);
  }
  // The relative error of their sum, which is f64: the mean of the terms'
  // errors weighted by softmax; exponentials that underflow lose at most the
  // smallest normal number each, beside a sum of at least 1.
  double SumError(int64_t r) const {
    const double top = Top(r);
    const double sum = reference::SumOfExponentials(classes, row(r), top);
    double error = 0.0;
    for (int64_t c = 0; c < classes; ++c) {
      error += std::exp(row(r)[c] - top) / sum * ExpError(row(r)[c], top);
    }
    return error +
           static_cast<double>(classes) * std::numeric_limits<float>::min();
  }
  // What each of the gradients `want` may be off by in f32: the factor, the
  // product and the label's difference are rounded.
  std::vector<double> GradBounds(double scale,
                                 const std::vector<double>& want) const {
    std::vector<double> bounds(want.size());
    for (int64_t r = 0; r < rows; ++r) {
      const double top = Top(r);
      const double sum_error = SumError(r);
      for (int64_t c = 0; c < classes; ++c) {
        const auto i = static_cast<size_t>(r * classes + c);
        const bool hot = c == labels[static_cast<size_t>(r)];
        const double p = std::fabs(want[i]) + (hot ? scale : 0.0);
        bounds[i] = p * (ExpError(row(r)[c], top) + sum_error + 3 * kUnit) +
                    std::numeric_limits<float>::min();
      }
    }
    return bounds;
  }
};

// d log(sum) = d sum / sum, then the row's loss and the mean are rounded.
inline double LossBound(const Rows& data, double loss) {
  double error = 0.0;
  for (int64_t r = 0; r < data.rows; ++r) error += data.SumError(r);
  return error / static_cast<double>(data.rows) + 3.0 * kUnit * loss;
}

}  // namespace thimble::kernels::testing
