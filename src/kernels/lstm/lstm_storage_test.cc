// SPDX-License-Identifier: Apache-2.0
//
// An LSTM's step and its gradient, of tensors that are stored in 16 bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/lstm/lstm.h"
#include "kernels/lstm/test_cell.h"
#include "kernels/storage_reference.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::Bounded;
using testing::CellCase;
using testing::CellGradCase;
using testing::Doubles;
using testing::ForEachTarget;
using testing::StoredTensor;
using testing::TestContext;
using testing::TestValue;

constexpr float kStoredOffset = 1.0f;

struct StoredStep {
  LstmShape shape;
  DType dtype;
  bool first;  // no state before it

  size_t size() const { return static_cast<size_t>(shape.rows * shape.hidden); }
};

// Random values in [-scale, scale).
class Scaled : public StoredTensor {
 public:
  Scaled(DType dtype, size_t n, uint64_t seed, float scale)
      : StoredTensor(dtype, n) {
    for (size_t i = 0; i < n; ++i) Set(i, scale * TestValue(seed, i));
  }
};

// Around the width of a vector on every target and of a block (256).
template <typename F>
void ForEachStep(const F& body) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const int64_t hidden : {1, 3, 4, 7, 8, 9, 15, 16, 17, 33, 255, 257}) {
      for (const int64_t rows : {0, 1, 3}) {
        const StoredStep step = {{rows, hidden}, dtype, hidden % 2 == 0};
        SCOPED_TRACE(::testing::Message() << "rows=" << rows << " hidden="
                                          << hidden << " " << DTypeName(dtype));
        body(step);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

void Copy(StoredTensor& from, StoredTensor& to) {
  std::ranges::copy(from.Bytes(), static_cast<uint8_t*>(to.data()));
}

// The same values stored as f32.
class F32Copy {
 public:
  explicit F32Copy(StoredTensor& from) : values_(from.size()) {
    for (size_t i = 0; i < values_.size(); ++i) {
      values_[i] = static_cast<float>(from.Get(i));
    }
  }
  explicit F32Copy(size_t n) : values_(n) {}
  Tensor tensor() { return F32(values_.data()); }
  float operator[](size_t i) const { return values_[i]; }

 private:
  std::vector<float> values_;
};

// That `got` is within the bound of f32 and one rounding of what is wanted, and
// that it is exactly the rounding of what the kernel makes in f32.
void ExpectRounded(const Bounded& want, StoredTensor& got, const F32Copy& f32,
                   const char* what) {
  const reference::Format format = got.dtype() == DType::kF16
                                       ? reference::kF16Format
                                       : reference::kBF16Format;
  for (size_t i = 0; i < want.want.size(); ++i) {
    const double value = want.want[i], bound = want.bound[i];
    ASSERT_NEAR(got.Get(i), value,
                bound + got.RoundingBound(std::abs(value) + bound))
        << what << " " << i;
    ASSERT_EQ(got.Get(i), reference::Rounded(format, f32[i]))
        << what << " " << i;
  }
}

void CheckCell(const StoredStep& step) {
  const size_t n = step.size();
  Scaled z(step.dtype, 4 * n, 1, 4.0f), before(step.dtype, n, 2, 2.0f);
  const CellCase want(step.shape, kStoredOffset, z.Wide(),
                      step.first ? Doubles{} : before.Wide());
  const auto in = [&](const ConstTensor& of_z, const ConstTensor& of_before) {
    return LstmCellInput{of_z, step.first ? ConstTensor::None() : of_before,
                         kStoredOffset};
  };
  ForEachTarget([&] {
    for (int threads : {1, 2, 3}) {
      const TestContext context(threads);
      F32Copy z32(z), before32(before), h32(n), c32(n), gates32(4 * n);
      LstmCell(step.shape, in(z32.tensor(), before32.tensor()),
               {h32.tensor(), c32.tensor(), gates32.tensor()}, *context);
      StoredTensor h(step.dtype, n), c(step.dtype, n), gates(step.dtype, 4 * n);
      LstmCell(step.shape, in(z.tensor(), before.tensor()),
               {h.tensor(), c.tensor(), gates.tensor()}, *context);
      ExpectRounded(want.h, h, h32, "h");
      ExpectRounded(want.c, c, c32, "c");
      ExpectRounded(want.gates, gates, gates32, "gate");
      // Gates over z, and c over the state before.
      StoredTensor on_z(step.dtype, 4 * n), on_before(step.dtype, n);
      StoredTensor again(step.dtype, n);
      Copy(z, on_z);
      Copy(before, on_before);
      LstmCell(step.shape, in(on_z.tensor(), on_before.tensor()),
               {again.tensor(), on_before.tensor(), on_z.tensor()}, *context);
      ASSERT_EQ(again.Bytes(), h.Bytes());
      ASSERT_EQ(on_before.Bytes(), c.Bytes());
      ASSERT_EQ(on_z.Bytes(), gates.Bytes());
      // Without gates, and h over the state before.
      Copy(before, on_before);
      LstmCell(step.shape, in(z.tensor(), on_before.tensor()),
               {on_before.tensor(), again.tensor(), Tensor::None()}, *context);
      ASSERT_EQ(on_before.Bytes(), h.Bytes());
      ASSERT_EQ(again.Bytes(), c.Bytes());
    }
  });
}

TEST(LstmStorage, CellRoundsOnceForAnyThreadCountAlsoInPlace) {
  ForEachStep(CheckCell);
}

// The inputs of a gradient, some of which are not there.
struct StoredGrad {
  explicit StoredGrad(const StoredStep& of)
      : step(of),
        gates(of.dtype, 4 * of.size(), 1, 1.0f),
        before(of.dtype, of.size(), 2, 2.0f),
        grad_h(of.dtype, of.size(), 3, 1.0f),
        grad_c(of.dtype, of.size(), 4, 1.0f) {
    const auto width = static_cast<size_t>(of.shape.hidden);
    for (size_t at = 0; at < gates.size(); ++at) {
      // Sigmoids are between 0 and 1; the third quarter is a tanh.
      if (at / width % 4 == 2) continue;
      gates.Set(at, (static_cast<float>(gates.Get(at)) + 1) / 2);
    }
  }
  bool has_before() const { return !step.first; }
  bool has_grad_c() const { return step.shape.hidden % 3 != 0; }
  bool has_grad_h() const {
    return !has_grad_c() || step.shape.hidden % 7 != 1;
  }
  LstmCellGradInput In(const ConstTensor& of_gates,
                       const ConstTensor& of_before, const ConstTensor& of_h,
                       const ConstTensor& of_c) const {
    const ConstTensor none = ConstTensor::None();
    return {of_gates, has_before() ? of_before : none,
            has_grad_h() ? of_h : none, has_grad_c() ? of_c : none};
  }
  LstmCellGradInput In() {
    return In(gates.tensor(), before.tensor(), grad_h.tensor(),
              grad_c.tensor());
  }
  CellGradCase Want() {
    return CellGradCase(step.shape,
                        {.gates = gates.Wide(),
                         .before = has_before() ? before.Wide() : Doubles{},
                         .grad_h = has_grad_h() ? grad_h.Wide() : Doubles{},
                         .grad_c = has_grad_c() ? grad_c.Wide() : Doubles{}});
  }

  StoredStep step;
  Scaled gates, before, grad_h, grad_c;
};

// grad_z over the gates; the state's gradient over each of the others.
void CheckGradInPlace(StoredGrad& grad, StoredTensor& want_z,
                      StoredTensor& want_before, const KernelContext& context) {
  const StoredStep& step = grad.step;
  for (const int over : {0, 1, 2}) {
    StoredTensor gates(step.dtype, 4 * step.size());
    StoredTensor before(step.dtype, step.size());
    StoredTensor grad_h(step.dtype, step.size());
    StoredTensor grad_c(step.dtype, step.size());
    Copy(grad.gates, gates);
    Copy(grad.before, before);
    Copy(grad.grad_h, grad_h);
    Copy(grad.grad_c, grad_c);
    StoredTensor* const targets[] = {&before, &grad_h, &grad_c};
    LstmCellGrad(step.shape,
                 grad.In(gates.tensor(), before.tensor(), grad_h.tensor(),
                         grad_c.tensor()),
                 {gates.tensor(), targets[over]->tensor()}, context);
    ASSERT_EQ(gates.Bytes(), want_z.Bytes());
    ASSERT_EQ(targets[over]->Bytes(), want_before.Bytes()) << "over " << over;
  }
}

TEST(LstmStorage, CellGradRoundsOnceForAnyThreadCountAlsoInPlace) {
  ForEachStep([](const StoredStep& step) {
    const size_t n = step.size();
    StoredGrad grad(step);
    const CellGradCase want = grad.Want();
    F32Copy gates(grad.gates), before(grad.before), grad_h(grad.grad_h);
    F32Copy grad_c(grad.grad_c), z32(4 * n), before32(n);
    ForEachTarget([&] {
      for (int threads : {1, 2, 3}) {
        const TestContext context(threads);
        LstmCellGrad(step.shape,
                     grad.In(gates.tensor(), before.tensor(), grad_h.tensor(),
                             grad_c.tensor()),
                     {z32.tensor(), before32.tensor()}, *context);
        StoredTensor grad_z(step.dtype, 4 * n), grad_before(step.dtype, n);
        LstmCellGrad(step.shape, grad.In(),
                     {grad_z.tensor(), grad_before.tensor()}, *context);
        ExpectRounded(want.z, grad_z, z32, "grad_z");
        ExpectRounded(want.before, grad_before, before32, "grad_c_before");
        CheckGradInPlace(grad, grad_z, grad_before, *context);
      }
    });
  });
}

TEST(LstmStorage, LetsNanThrough) {
  ForEachTarget([] {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      const LstmShape shape{1, 21};
      StoredTensor z(dtype, 84, 1), before(dtype, 21, 2);
      StoredTensor h(dtype, 21), c(dtype, 21);
      z.Set(20, std::numeric_limits<float>::infinity());
      z.Set(19, -std::numeric_limits<float>::infinity());
      // A NaN: all bits of the exponent and of the fraction.
      std::fill_n(static_cast<uint8_t*>(z.data()) + 2 * 18, 2, uint8_t{0xFF});
      const TestContext context(1);
      LstmCell(shape, {z.tensor(), before.tensor(), 0.0f},
               {h.tensor(), c.tensor(), Tensor::None()}, *context);
      for (size_t k = 0; k < 21; ++k) {
        EXPECT_EQ(std::isnan(c.Get(k)), k == 18) << k;
        EXPECT_EQ(std::isnan(h.Get(k)), k == 18) << k;
      }
    }
  });
}

}  // namespace
}  // namespace thimble::kernels
