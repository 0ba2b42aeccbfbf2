// SPDX-License-Identifier: Apache-2.0
#include "kernels/lstm/lstm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <ostream>
#include <type_traits>
#include <vector>

#include "kernels/lstm/reference.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::FillRandom;
using testing::ForEachTarget;
using testing::GuardedBuffer;
using testing::TestContext;

// A forgotten tensor does not compile.
static_assert(!std::is_default_constructible_v<LstmCellInput>);
static_assert(!std::is_default_constructible_v<LstmCellOutput>);
static_assert(!std::is_default_constructible_v<LstmCellGradInput>);
static_assert(!std::is_default_constructible_v<LstmCellGradOutput>);

constexpr double kEps = std::numeric_limits<float>::epsilon();
constexpr float kOffset = 1.0f;

// Relative errors of the nonlinearities: Highway states 1 ulp for exp, to which
// a sum and a quotient add less than 2; and 4 ulp for tanh.
constexpr double kSigmoidError = 3 * kEps;
constexpr double kTanhError = 4 * kEps;

struct Case {
  LstmShape shape;
  size_t misalign;
  int threads;
  bool first_step;  // no state before it
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "rows=" << c.shape.rows << " hidden=" << c.shape.hidden
             << " misalign=" << c.misalign << " threads=" << c.threads
             << " first_step=" << c.first_step;
}

// Around the width of a vector on every target and of a block (256), past both.
template <typename F>
void ForEachCase(const F& body) {
  ForEachTarget([&] {
    for (const int64_t hidden :
         {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 128, 255, 257, 515}) {
      for (const int64_t rows : {0, 1, 3, 8}) {
        const auto variant = static_cast<size_t>(hidden + rows);
        const Case c{{rows, hidden},
                     variant % 4,
                     1 + static_cast<int>(variant % 3),
                     hidden % 5 == 0};
        SCOPED_TRACE(::testing::Message() << c);
        body(c);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  });
}

class RandomBuffer : public GuardedBuffer<float> {
 public:
  RandomBuffer(int64_t n, size_t misalign, uint64_t seed, float scale = 1.0f)
      : GuardedBuffer<float>(static_cast<size_t>(n), misalign) {
    FillRandom(span(), seed);
    for (float& value : span()) value *= scale;
  }
  std::vector<double> Wide() const { return {data(), data() + size()}; }
  std::vector<float> Bits() const { return {data(), data() + size()}; }
};

struct Forward {
  explicit Forward(const Case& c)
      : n(c.shape.rows * c.shape.hidden),
        z(4 * n, c.misalign, 1, 4.0f),
        before(n, c.misalign + 1, 2, 2.0f),
        first(c.first_step) {}
  LstmCellInput In() const {
    return {F32(z.data()), first ? ConstTensor::None() : F32(before.data()),
            kOffset};
  }
  int64_t n;
  RandomBuffer z, before;
  bool first;
};

// Checks h, c and gates of one case against the reference in f64.
void ExpectCell(const Case& c, const Forward& f, const RandomBuffer& h,
                const RandomBuffer& cell, const RandomBuffer& gates) {
  const auto n = static_cast<size_t>(f.n);
  const size_t width = static_cast<size_t>(c.shape.hidden);
  std::vector<double> want_h(n), want_c(n), want_gates(4 * n);
  const std::vector<double> z = f.z.Wide(), before = f.before.Wide();
  reference::LstmCell(c.shape, kOffset, z.data(),
                      c.first_step ? nullptr : before.data(), want_h.data(),
                      want_c.data(), want_gates.data());
  for (size_t at = 0; at < n; ++at) {
    const size_t row = at / width * 4 * width + at % width;
    const double* gate = &want_gates[row];
    const double i = gate[0], forget = gate[width], g = gate[2 * width];
    const double o = gate[3 * width];
    // The offset is added first, and rounded.
    const double forget_error =
        kSigmoidError + kEps / 2 * std::abs(z[row + width] + kOffset);
    const double errors[] = {kSigmoidError, forget_error, kTanhError,
                             kSigmoidError};
    for (size_t k = 0; k < 4; ++k) {
      const double w = gate[k * width];
      ASSERT_NEAR(gates[row + k * width], w, errors[k] * std::abs(w))
          << "gate " << k << " of element " << at;
    }
    const double kept = c.first_step ? 0 : std::abs(forget * before[at]);
    const double error_c =
        kept * (forget_error + kEps) +
        std::abs(i * g) * (kSigmoidError + kTanhError + kEps);
    ASSERT_NEAR(cell[at], want_c[at], error_c) << "c of element " << at;
    const double error_h =
        o * error_c +
        std::abs(want_h[at]) * (kSigmoidError + kTanhError + kEps);
    ASSERT_NEAR(h[at], want_h[at], error_h) << "h of element " << at;
  }
}

TEST(Lstm, CellMatchesReferenceAlsoInPlace) {
  ForEachCase([](const Case& c) {
    Forward f(c);
    const TestContext context(c.threads);
    RandomBuffer h(f.n, 1, 3), cell(f.n, c.misalign, 4), gates(4 * f.n, 2, 5);
    LstmCell(c.shape, f.In(),
             {F32(h.data()), F32(cell.data()), F32(gates.data())}, *context);
    ExpectCell(c, f, h, cell, gates);
    // Evaluation keeps no gates.
    RandomBuffer h2(f.n, 1, 6), cell2(f.n, 0, 7);
    LstmCell(c.shape, f.In(),
             {F32(h2.data()), F32(cell2.data()), Tensor::None()}, *context);
    EXPECT_EQ(h2.Bits(), h.Bits());
    EXPECT_EQ(cell2.Bits(), cell.Bits());
    // h, then c, over the state before; gates over z.
    Forward again(c);
    LstmCell(c.shape, again.In(),
             {F32(again.before.data()), F32(cell2.data()), Tensor::None()},
             *context);
    EXPECT_EQ(again.before.Bits(), h.Bits());
    LstmCell(c.shape, f.In(),
             {F32(h2.data()), F32(f.before.data()), F32(f.z.data())}, *context);
    EXPECT_EQ(h2.Bits(), h.Bits());
    EXPECT_EQ(f.before.Bits(), cell.Bits());
    EXPECT_EQ(f.z.Bits(), gates.Bits());
    for (const RandomBuffer* t :
         {&h, &cell, &gates, &h2, &cell2, &f.z, &f.before}) {
      t->CheckGuards("lstm cell");
    }
  });
}

struct Backward {
  explicit Backward(const Case& c)
      : n(c.shape.rows * c.shape.hidden),
        gates(4 * n, c.misalign, 1),
        before(n, c.misalign + 1, 2, 2.0f),
        grad_h(n, c.misalign, 3),
        grad_c(n, 3, 4),
        first(c.first_step),
        last(c.shape.hidden % 3 == 0),
        unread(!last && c.shape.hidden % 7 == 1) {
    const auto width = static_cast<size_t>(c.shape.hidden);
    for (size_t at = 0; at < gates.size(); ++at) {
      // Sigmoids are between 0 and 1; the third quarter is a tanh.
      if (at / width % 4 != 2) gates[at] = (gates[at] + 1) / 2;
    }
  }
  LstmCellGradInput In() const {
    return {F32(gates.data()), first ? ConstTensor::None() : F32(before.data()),
            unread ? ConstTensor::None() : F32(grad_h.data()),
            last ? ConstTensor::None() : F32(grad_c.data())};
  }
  int64_t n;
  RandomBuffer gates, before, grad_h, grad_c;
  bool first;
  bool last;    // no gradient comes from a next step
  bool unread;  // none comes through h
};

// Checks the gradients of one case against the reference in f64.
void ExpectGrad(const Case& c, const Backward& b, const RandomBuffer& grad_z,
                const RandomBuffer& grad_before) {
  const auto n = static_cast<size_t>(b.n);
  const size_t width = static_cast<size_t>(c.shape.hidden);
  const std::vector<double> gates = b.gates.Wide(), before = b.before.Wide();
  std::vector<double> grad_h = b.grad_h.Wide(), later = b.grad_c.Wide();
  if (b.unread) std::ranges::fill(grad_h, 0.0);
  if (b.last) std::ranges::fill(later, 0.0);
  std::vector<double> want(4 * n), want_before(n);
  reference::LstmCellGrad(
      c.shape, gates.data(), b.first ? nullptr : before.data(), grad_h.data(),
      b.last ? nullptr : later.data(), want.data(), want_before.data());
  for (size_t at = 0; at < n; ++at) {
    const size_t row = at / width * 4 * width + at % width;
    const double i = gates[row], f = gates[row + width];
    const double g = gates[row + 2 * width], o = gates[row + 3 * width];
    const double state = b.first ? 0 : before[at];
    const double t = std::tanh(f * state + i * g);
    const double slope = 1 - t * t;
    // Errors go from tanh(c) to 1 − tanh² to the gradient of c and on; each
    // product or sum on the way rounds once.
    const double error_t = kEps * (std::abs(f * state) + std::abs(i * g)) +
                           kTanhError * std::abs(t);
    const double error_slope =
        (2 * std::abs(t) + error_t) * error_t + 1.5 * kEps * slope;
    const double grad = later[at] + grad_h[at] * o * slope;
    const double error =
        std::abs(grad_h[at] * o) * (error_slope + kEps * slope) +
        kEps * std::abs(grad);
    const double factors[] = {g * i * (1 - i), state * f * (1 - f),
                              i * (1 - g * g)};
    const double rounding = 2.5 * kEps;
    for (size_t k = 0; k < 3; ++k) {
      const double w = want[row + k * width];
      ASSERT_NEAR(grad_z[row + k * width], w,
                  std::abs(factors[k]) * error + rounding * std::abs(w))
          << "gate " << k << " of element " << at;
    }
    const double w = want[row + 3 * width];
    ASSERT_NEAR(
        grad_z[row + 3 * width], w,
        std::abs(grad_h[at] * o * (1 - o)) * error_t + rounding * std::abs(w))
        << "output gate of element " << at;
    ASSERT_NEAR(grad_before[at], want_before[at],
                f * error + kEps * std::abs(want_before[at]))
        << "state of element " << at;
  }
}

TEST(Lstm, CellGradMatchesReferenceAlsoInPlace) {
  ForEachCase([](const Case& c) {
    const Backward b(c);
    const TestContext context(c.threads);
    RandomBuffer grad_z(4 * b.n, 2, 5), grad_before(b.n, 1, 6);
    LstmCellGrad(c.shape, b.In(), {F32(grad_z.data()), F32(grad_before.data())},
                 *context);
    ExpectGrad(c, b, grad_z, grad_before);
    grad_z.CheckGuards("grad_z");
    grad_before.CheckGuards("grad_before");
    // grad_z over the gates; the state's over each of the others, or not made.
    for (const int over : {0, 1, 2, 3}) {
      Backward in_place(c);
      RandomBuffer* const targets[] = {nullptr, &in_place.before,
                                       &in_place.grad_h, &in_place.grad_c};
      RandomBuffer* target = targets[over];
      LstmCellGrad(c.shape, in_place.In(),
                   {F32(in_place.gates.data()),
                    target == nullptr ? Tensor::None() : F32(target->data())},
                   *context);
      EXPECT_EQ(in_place.gates.Bits(), grad_z.Bits());
      in_place.gates.CheckGuards("gates");
      if (target == nullptr) continue;
      EXPECT_EQ(target->Bits(), grad_before.Bits()) << "over " << over;
      target->CheckGuards("target");
    }
  });
}

TEST(Lstm, SaturatesWithoutNan) {
  ForEachTarget([] {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float large : {100.0f, 1e4f, 1e30f, infinity}) {
      const LstmShape shape{2, 20};
      RandomBuffer z(160, 0, 1), before(40, 0, 2), h(40, 0, 3), c(40, 0, 4);
      // Row 0 opens every gate, row 1 closes it.
      std::fill_n(z.data(), 80, large);
      std::fill_n(z.data() + 80, 80, -large);
      const TestContext context(1);
      LstmCell(shape, {F32(z.data()), F32(before.data()), 0.0f},
               {F32(h.data()), F32(c.data()), Tensor::None()}, *context);
      for (size_t k = 0; k < 20; ++k) {
        ASSERT_EQ(c[k], before[k] + 1.0f);
        ASSERT_NEAR(h[k], std::tanh(c[k]), kTanhError);
        ASSERT_NEAR(c[20 + k], 0.0f, 1e-37);
        ASSERT_NEAR(h[20 + k], 0.0f, 1e-37);
      }
    }
  });
}

TEST(Lstm, LetsNanThrough) {
  ForEachTarget([] {
    const LstmShape shape{1, 21};
    for (const size_t gate : {0, 1, 2, 3}) {
      RandomBuffer z(84, 0, 1), before(21, 0, 2), h(21, 0, 3), c(21, 0, 4);
      z[gate * 21 + 20] = std::numeric_limits<float>::quiet_NaN();
      const TestContext context(1);
      LstmCell(shape, {F32(z.data()), F32(before.data()), 0.0f},
               {F32(h.data()), F32(c.data()), Tensor::None()}, *context);
      EXPECT_TRUE(std::isnan(h[20])) << "gate " << gate;
      EXPECT_EQ(std::isnan(c[20]), gate != 3);
      for (size_t k = 0; k < 20; ++k) ASSERT_TRUE(std::isfinite(h[k]));
    }
  });
}

TEST(LstmDeathTest, ReadsNoOtherTypeAsF32) {
  RandomBuffer z(8, 0, 1), h(2, 0, 2), c(2, 0, 3);
  const TestContext context(1);
  EXPECT_DEATH(
      LstmCell({1, 2}, {{z.data(), DType::kF16}, ConstTensor::None(), 0.0f},
               {F32(h.data()), F32(c.data()), Tensor::None()}, *context),
      "check failed");
}

// The derivative of sum(grad_h · h + grad_c · c) along one coordinate, by a
// step of i·s: exact to rounding.
TEST(Lstm, ReferenceGradientMatchesComplexStep) {
  using Complex = std::complex<double>;
  constexpr double kStep = 1e-30;
  const Case c{{3, 4}, 0, 1, false};
  const Forward f(c);
  const RandomBuffer gh(f.n, 0, 8), gc(f.n, 0, 9);
  const std::vector<double> z = f.z.Wide(), before = f.before.Wide();
  const std::vector<double> grad_h = gh.Wide(), grad_c = gc.Wide();
  const size_t n = before.size();
  std::vector<double> h(n), cell(n), gates(4 * n), grad_z(4 * n), grad_b(n);
  reference::LstmCell(c.shape, kOffset, z.data(), before.data(), h.data(),
                      cell.data(), gates.data());
  reference::LstmCellGrad(c.shape, gates.data(), before.data(), grad_h.data(),
                          grad_c.data(), grad_z.data(), grad_b.data());
  std::vector<Complex> at_z(z.begin(), z.end());
  std::vector<Complex> at_before(before.begin(), before.end());
  const auto derivative = [&] {
    std::vector<Complex> made_h(n), made_c(n);
    reference::LstmCell<Complex>(c.shape, kOffset, at_z.data(),
                                 at_before.data(), made_h.data(), made_c.data(),
                                 nullptr);
    double sum = 0;
    for (size_t k = 0; k < n; ++k) {
      sum += grad_h[k] * made_h[k].imag() + grad_c[k] * made_c[k].imag();
    }
    return sum / kStep;
  };
  const double bound = 100 * std::numeric_limits<double>::epsilon();
  for (size_t k = 0; k < 4 * n; ++k) {
    at_z[k] += Complex(0, kStep);
    EXPECT_NEAR(grad_z[k], derivative(), bound);
    at_z[k] = z[k];
  }
  for (size_t k = 0; k < n; ++k) {
    at_before[k] += Complex(0, kStep);
    EXPECT_NEAR(grad_b[k], derivative(), bound);
    at_before[k] = before[k];
  }
}

}  // namespace
}  // namespace thimble::kernels
