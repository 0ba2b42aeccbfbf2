// SPDX-License-Identifier: Apache-2.0
#include "kernels/lstm/lstm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <ostream>
#include <tuple>
#include <type_traits>
#include <vector>

#include "kernels/lstm/reference.h"
#include "kernels/lstm/test_cell.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::Bounded;
using testing::CellCase;
using testing::CellGradCase;
using testing::Doubles;
using testing::FillRandom;
using testing::ForEachTarget;
using testing::GuardedBuffer;
using testing::kTanhError;
using testing::TestContext;

// A forgotten tensor does not compile.
static_assert(!std::is_default_constructible_v<LstmCellInput>);
static_assert(!std::is_default_constructible_v<LstmCellOutput>);
static_assert(!std::is_default_constructible_v<LstmCellGradInput>);
static_assert(!std::is_default_constructible_v<LstmCellGradOutput>);

constexpr float kOffset = 1.0f;

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

void ExpectBounded(const Bounded& want, const RandomBuffer& got,
                   const char* what) {
  for (size_t k = 0; k < want.want.size(); ++k) {
    ASSERT_NEAR(got[k], want.want[k], want.bound[k]) << what << " " << k;
  }
}

// Checks h, c and gates of one case against the reference in f64.
void ExpectCell(const Case& c, const Forward& f, const RandomBuffer& h,
                const RandomBuffer& cell, const RandomBuffer& gates) {
  const CellCase want(c.shape, kOffset, f.z.Wide(),
                      c.first_step ? Doubles{} : f.before.Wide());
  ExpectBounded(want.gates, gates, "gate");
  ExpectBounded(want.c, cell, "c");
  ExpectBounded(want.h, h, "h");
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
  const CellGradCase want(c.shape,
                          {.gates = b.gates.Wide(),
                           .before = b.first ? Doubles{} : b.before.Wide(),
                           .grad_h = b.unread ? Doubles{} : b.grad_h.Wide(),
                           .grad_c = b.last ? Doubles{} : b.grad_c.Wide()});
  ExpectBounded(want.z, grad_z, "grad_z");
  ExpectBounded(want.before, grad_before, "grad_c_before");
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

TEST(LstmDeathTest, TensorsOfDifferentTypesAndTypesThatAreNoFloatsAreRefused) {
  RandomBuffer z(8, 0, 1), h(2, 0, 2), c(2, 0, 3);
  const TestContext context(1);
  const auto cell = [&](DType of_z, DType of_h, DType of_c) {
    LstmCell({1, 2}, {{z.data(), of_z}, ConstTensor::None(), 0.0f},
             {{h.data(), of_h}, {c.data(), of_c}, Tensor::None()}, *context);
  };
  const auto grad = [&](DType of_gates, DType of_h, DType of_z) {
    LstmCellGrad({1, 2},
                 {{z.data(), of_gates},
                  ConstTensor::None(),
                  {h.data(), of_h},
                  ConstTensor::None()},
                 {{z.data(), of_z}, Tensor::None()}, *context);
  };
  const DType f32 = DType::kF32, f16 = DType::kF16, u8 = DType::kU8;
  for (const auto& [a, b, d] :
       {std::tuple(f16, f32, f32), std::tuple(f32, f16, f32),
        std::tuple(f32, f32, f16), std::tuple(u8, u8, u8)}) {
    EXPECT_DEATH(cell(a, b, d), "check failed");
    EXPECT_DEATH(grad(a, b, d), "check failed");
  }
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
