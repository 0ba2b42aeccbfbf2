// SPDX-License-Identifier: Apache-2.0
//
// Test only: rows to normalise, with bounds of the error of f32.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/layer_norm/layer_norm.h"
#include "kernels/layer_norm/reference.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels::testing {

using Doubles = std::vector<double>;

inline constexpr float kEpsilon = 1e-5f;
inline constexpr double kUnit = std::numeric_limits<float>::epsilon() / 2;

// Rows of features around a mean of 0.75, with what the definition makes of
// them and how far f32 may be from it.
struct Rows {
  Rows(DType dtype, int64_t rows_, int64_t features_)
      : rows(rows_),
        features(features_),
        size(static_cast<size_t>(rows * features)),
        x(dtype, size),
        grad_y(dtype, size, 2),
        gamma(Randoms(features, 3, 0.5f, 1.5f)),
        beta(Randoms(features, 4, -1.0f, 1.0f)),
        y(size),
        y_bound(size),
        grad_x(size),
        grad_x_bound(size),
        grad_gamma(gamma.size()),
        grad_gamma_bound(gamma.size()),
        grad_beta(gamma.size()),
        grad_beta_bound(gamma.size()) {
    for (size_t i = 0; i < size; ++i) {
      x.Set(i, 0.75f + TestValue(1, i));
    }
    const Doubles wide = x.Wide(), grads = grad_y.Wide();
    const Doubles g(gamma.begin(), gamma.end()), b(beta.begin(), beta.end());
    reference::LayerNorm(rows, features, double{kEpsilon}, wide.data(),
                         g.data(), b.data(), y.data());
    reference::LayerNormGrad(rows, features, double{kEpsilon}, wide.data(),
                             g.data(), grads.data(), grad_x.data(),
                             grad_gamma.data(), grad_beta.data());
    Doubles gamma_size(gamma.size()), beta_size(gamma.size());
    for (int64_t r = 0; r < rows; ++r) {
      AddRow(wide.data() + r * features, grads.data() + r * features, r,
             gamma_size, beta_size);
    }
    // Partial sums are sums, too: one more addition for each.
    const int64_t terms = rows + rows / kLayerNormRows + 2;
    for (size_t i = 0; i < gamma.size(); ++i) {
      grad_gamma_bound[i] += SumErrorBound(terms, gamma_size[i]);
      grad_beta_bound[i] = SumErrorBound(terms, beta_size[i]);
    }
  }

  // To the first order, with every rounding of a formula at its largest. Bounds
  // of sums, which assume one chain of additions, leave room for the rest.
  void AddRow(const double* row, const double* grads, int64_t r,
              Doubles& gamma_size, Doubles& beta_size) {
    double mean = 0, inv_std = 0;
    reference::LayerNormMoments(features, double{kEpsilon}, row, &mean,
                                &inv_std);
    const auto n = static_cast<double>(features);
    double sizes = 0, squares = 0, g_sum = 0, g_sizes = 0, product = 0;
    double product_sizes = 0, product_errors = 0;
    for (int64_t i = 0; i < features; ++i) sizes += std::abs(row[i]);
    const double mean_error =
        SumErrorBound(features, sizes) / n + kUnit * std::abs(mean);
    const auto off_error = [&](int64_t i) {
      return mean_error + kUnit * (std::abs(row[i]) + std::abs(mean));
    };
    double variance_error = 0;
    for (int64_t i = 0; i < features; ++i) {
      const double off = row[i] - mean;
      const double g = grads[i] * double{gamma[static_cast<size_t>(i)]};
      squares += off * off;
      variance_error +=
          (2 * std::abs(off) * off_error(i) + off_error(i) * off_error(i)) / n;
      g_sum += g;
      g_sizes += std::abs(g);
      product += g * off * inv_std;
      product_sizes += std::abs(g * off) * inv_std;
      product_errors += std::abs(g) * off_error(i) * inv_std;
    }
    variance_error += SumErrorBound(features, squares) / n;
    const double relative = variance_error * inv_std * inv_std / 2 + 2 * kUnit;
    const double sum_error =
        SumErrorBound(features + 1, g_sizes) / n + kUnit * std::abs(g_sum / n);
    const double product_error =
        (SumErrorBound(features + 1, product_sizes) + product_errors +
         product_sizes * (relative + 3 * kUnit)) /
        n;
    for (int64_t i = 0; i < features; ++i) {
      const auto k = static_cast<size_t>(i);
      const auto at = static_cast<size_t>(r * features + i);
      const double normal = (row[i] - mean) * inv_std;
      const double normal_error =
          off_error(i) * inv_std + std::abs(normal) * (relative + 2 * kUnit);
      const double part = std::abs(normal * double{gamma[k]});
      y_bound[at] = normal_error * double{gamma[k]} +
                    2 * kUnit * (part + std::abs(double{beta[k]}));
      const double g = std::abs(grads[i] * double{gamma[k]});
      const double parts =
          g + std::abs(g_sum / n) + std::abs(normal * product / n);
      grad_x_bound[at] =
          inv_std * (sum_error + std::abs(normal) * product_error +
                     normal_error * std::abs(product / n) +
                     parts * (relative + 5 * kUnit));
      gamma_size[k] += std::abs(grads[i] * normal);
      grad_gamma_bound[k] += std::abs(grads[i]) * normal_error;
      beta_size[k] += std::abs(grads[i]);
    }
  }

  int64_t rows, features;
  size_t size;
  StoredTensor x, grad_y;
  std::vector<float> gamma, beta;
  Doubles y, y_bound, grad_x, grad_x_bound;
  Doubles grad_gamma, grad_gamma_bound, grad_beta, grad_beta_bound;
};

}  // namespace thimble::kernels::testing
