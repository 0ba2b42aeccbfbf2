// SPDX-License-Identifier: Apache-2.0
//
// Test only: what an LSTM's step and its gradient are in f64, and how far those
// in f32 may be off it.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "kernels/lstm/lstm.h"
#include "kernels/lstm/reference.h"

namespace thimble::kernels::testing {

using Doubles = std::vector<double>;

inline constexpr double kEps = std::numeric_limits<float>::epsilon();

// Relative errors of the nonlinearities: Highway states 1 ulp for exp, to which
// a sum and a quotient add less than 2; and 4 ulp for tanh.
inline constexpr double kSigmoidError = 3 * kEps;
inline constexpr double kTanhError = 4 * kEps;

// A tensor that is not there is an empty vector.
inline const double* OrNull(const Doubles& values) {
  return values.empty() ? nullptr : values.data();
}

// Values, and the bounds of their errors.
struct Bounded {
  explicit Bounded(size_t n) : want(n), bound(n) {}
  Doubles want, bound;
};

struct CellCase {
  CellCase(const LstmShape& shape, float offset, const Doubles& z,
           const Doubles& before)
      : h(z.size() / 4), c(z.size() / 4), gates(z.size()) {
    const auto width = static_cast<size_t>(shape.hidden);
    reference::LstmCell(shape, offset, z.data(), OrNull(before), h.want.data(),
                        c.want.data(), gates.want.data());
    for (size_t at = 0; at < h.want.size(); ++at) {
      const size_t row = at / width * 4 * width + at % width;
      const double* gate = &gates.want[row];
      const double i = gate[0], forget = gate[width], g = gate[2 * width];
      const double o = gate[3 * width];
      // The offset is added first, and rounded.
      const double forget_error =
          kSigmoidError + kEps / 2 * std::abs(z[row + width] + offset);
      const double errors[] = {kSigmoidError, forget_error, kTanhError,
                               kSigmoidError};
      for (size_t k = 0; k < 4; ++k) {
        gates.bound[row + k * width] = errors[k] * std::abs(gate[k * width]);
      }
      const double kept = before.empty() ? 0 : std::abs(forget * before[at]);
      c.bound[at] = kept * (forget_error + kEps) +
                    std::abs(i * g) * (kSigmoidError + kTanhError + kEps);
      h.bound[at] = o * c.bound[at] +
                    std::abs(h.want[at]) * (kSigmoidError + kTanhError + kEps);
    }
  }
  Bounded h, c, gates;
};

struct CellGradCase {
  // What the gradient is made of; all but the gates may be empty.
  struct Input {
    Doubles gates, before, grad_h, grad_c;
  };

  CellGradCase(const LstmShape& shape, const Input& in)
      : z(in.gates.size()), before(in.gates.size() / 4) {
    reference::LstmCellGrad(shape, in.gates.data(), OrNull(in.before),
                            OrNull(in.grad_h), OrNull(in.grad_c), z.want.data(),
                            before.want.data());
    for (size_t at = 0; at < before.want.size(); ++at) {
      FindBounds(static_cast<size_t>(shape.hidden), in, at);
    }
  }
  Bounded z, before;

 private:
  // Errors go from tanh(c) to 1 − tanh² to the gradient of c and on; each
  // product or sum on the way rounds once.
  void FindBounds(size_t width, const Input& in, size_t at) {
    const size_t row = at / width * 4 * width + at % width;
    const double i = in.gates[row], f = in.gates[row + width];
    const double g = in.gates[row + 2 * width], o = in.gates[row + 3 * width];
    const double state = in.before.empty() ? 0 : in.before[at];
    const double grad_h = in.grad_h.empty() ? 0 : in.grad_h[at];
    const double later = in.grad_c.empty() ? 0 : in.grad_c[at];
    const double t = std::tanh(f * state + i * g);
    const double slope = 1 - t * t;
    const double error_t = kEps * (std::abs(f * state) + std::abs(i * g)) +
                           kTanhError * std::abs(t);
    const double error_slope =
        (2 * std::abs(t) + error_t) * error_t + 1.5 * kEps * slope;
    const double grad = later + grad_h * o * slope;
    const double error = std::abs(grad_h * o) * (error_slope + kEps * slope) +
                         kEps * std::abs(grad);
    const double factors[] = {g * i * (1 - i), state * f * (1 - f),
                              i * (1 - g * g)};
    const double rounding = 2.5 * kEps;
    for (size_t k = 0; k < 3; ++k) {
      z.bound[row + k * width] = std::abs(factors[k]) * error +
                                 rounding * std::abs(z.want[row + k * width]);
    }
    z.bound[row + 3 * width] = std::abs(grad_h * o * (1 - o)) * error_t +
                               rounding * std::abs(z.want[row + 3 * width]);
    before.bound[at] = f * error + kEps * std::abs(before.want[at]);
  }
};

}  // namespace thimble::kernels::testing
