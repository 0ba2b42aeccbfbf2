// SPDX-License-Identifier: Apache-2.0
#include "kernels/dynamic_conv/dynamic_conv.h"

#include <gtest/gtest.h>

#include <complex>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/bounded.h"
#include "kernels/dynamic_conv/reference.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::Bounded;
using testing::ExactOnes;
using testing::ForEachFloatType;
using testing::ForEachTarget;
using testing::GuardedBuffer;
using testing::StoredTensor;
using testing::TestContext;

struct Case {
  DynamicConvShape shape;
  std::vector<int32_t> ends;
  float rate = 0.0f;

  Sentences sentences() const {
    return {static_cast<int64_t>(ends.size()), ends.data()};
  }
  int64_t rows() const { return sentences().rows(); }
  size_t features() const {
    return static_cast<size_t>(rows() * shape.features);
  }
  size_t taps() const { return static_cast<size_t>(rows() * shape.taps()); }
  DropoutMask mask(int64_t first = 5) const {
    return {.seed = 7, .step = 3, .stream = 2, .first = first, .rate = rate};
  }
  std::string Name() const {
    return std::to_string(shape.features) + " features, " +
           std::to_string(shape.heads) + " heads of " +
           std::to_string(shape.kernel) + " taps" +
           (shape.causal ? ", causal, " : ", ") + std::to_string(rows()) +
           " rows, rate " + std::to_string(rate);
  }
};

// Sentences of one token, of none, shorter and longer than a kernel and than
// the blocks of rows; heads around the width of vectors.
std::vector<Case> Cases() {
  const std::vector<int32_t> ragged = {1, 1, 3, 20, 21, 46};
  return {{{.features = 1, .heads = 1, .kernel = 1}, {1}},
          {{.features = 6, .heads = 2, .kernel = 3}, ragged, 0.25f},
          {{.features = 15, .heads = 1, .kernel = 5}, ragged},
          {{.features = 68, .heads = 4, .kernel = 7}, ragged, 0.1f},
          {{.features = 64, .heads = 2, .kernel = 31}, ragged, 0.1f},
          {{.features = 10, .heads = 5, .kernel = 31}, {4, 80, 81}},
          {{.features = 128, .heads = 1, .kernel = 3}, {150}},
          {{.features = 130, .heads = 2, .kernel = 15}, {9, 100}, 0.5f},
          {{.features = 33, .heads = 3, .kernel = 4, .causal = true}, ragged},
          {{.features = 80, .heads = 1, .kernel = 31, .causal = true},
           {7, 90, 91},
           0.1f},
          {{.features = 48, .heads = 3, .kernel = 1, .causal = true}, {5, 6}}};
}

// What the three kernels read, by its name.
enum In : uint8_t { kU, kLogits, kGradY };

// One kernel, and its definition for any element type.
struct Pass {
  const char* name;
  bool gives_taps;
  void (*run)(const Case&, ConstTensor (&in)[3], Tensor, const KernelContext&);
  template <typename T>
  static void Define(int pass, const Case& c, const T* const (&in)[3], T* y) {
    namespace ref = kernels::reference;
    if (pass == 0) {
      ref::DynamicConv(c.shape, c.sentences(), c.mask(), in[kU], in[kLogits],
                       y);
    } else if (pass == 1) {
      ref::DynamicConvGradInput(c.shape, c.sentences(), c.mask(), in[kLogits],
                                in[kGradY], y);
    } else {
      ref::DynamicConvGradLogits(c.shape, c.sentences(), c.mask(), in[kU],
                                 in[kLogits], in[kGradY], y);
    }
  }
};
const Pass kPasses[] = {
    {"forward", false,
     [](const Case& c, ConstTensor (&in)[3], Tensor y, const KernelContext& k) {
       DynamicConv(c.shape, c.sentences(), c.mask(), in[kU], in[kLogits], y, k);
     }},
    {"grad input", false,
     [](const Case& c, ConstTensor (&in)[3], Tensor y, const KernelContext& k) {
       DynamicConvGradInput(c.shape, c.sentences(), c.mask(), in[kLogits],
                            in[kGradY], y, k);
     }},
    {"grad logits", true,
     [](const Case& c, ConstTensor (&in)[3], Tensor y, const KernelContext& k) {
       DynamicConvGradLogits(c.shape, c.sentences(), c.mask(), in[kU],
                             in[kLogits], in[kGradY], y, k);
     }}};

// Every target and type, with inputs that end where an unreadable page begins.
TEST(DynamicConv, MatchesReference) {
  ForEachFloatType([](DType dtype) {
    for (const Case& c : Cases()) {
      SCOPED_TRACE(c.Name());
      StoredTensor u(dtype, c.features(), 1), logits(dtype, c.taps(), 2),
          grad_y(dtype, c.features(), 3);
      for (size_t i = 0; i < c.taps(); ++i) {
        logits.Set(i, 3 * testing::TestValue(2, i));
      }
      const auto exact_u = ExactOnes(u.Wide());
      const auto exact_logits = ExactOnes(logits.Wide());
      const auto exact_grad = ExactOnes(grad_y.Wide());
      for (int p = 0; p < 3; ++p) {
        SCOPED_TRACE(kPasses[p].name);
        const size_t n = kPasses[p].gives_taps ? c.taps() : c.features();
        std::vector<Bounded> want(n);
        Pass::Define<Bounded>(
            p, c, {exact_u.data(), exact_logits.data(), exact_grad.data()},
            want.data());
        std::vector<uint8_t> first;
        for (int threads : {1, 2, 3}) {
          TestContext context(threads, DynamicConvWorkspace(c.shape));
          StoredTensor y(dtype, n, 9);
          ConstTensor in[] = {u.tensor(), logits.tensor(), grad_y.tensor()};
          kPasses[p].run(c, in, y.tensor(), *context);
          if (first.empty()) first = y.Bytes();
          ASSERT_EQ(y.Bytes(), first) << threads << " threads";
          for (size_t i = 0; i < n; ++i) {
            const double bound = want[i].Bound();
            const double value = want[i].value();
            ASSERT_LE(std::abs(y.Get(i) - value),
                      bound + y.RoundingBound(std::abs(value) + bound))
                << i;
          }
        }
      }
    }
  });
}

// Inputs and output of types of their own.
TEST(DynamicConv, TypesMayDiffer) {
  const Case c = Cases()[4];
  ForEachTarget([&] {
    TestContext context(2, DynamicConvWorkspace(c.shape));
    StoredTensor in[] = {{DType::kBF16, c.features(), 1},
                         {DType::kF16, c.taps(), 2},
                         {DType::kF32, c.features(), 3}};
    const std::vector<double> wide[] = {in[0].Wide(), in[1].Wide(),
                                        in[2].Wide()};
    for (const Pass& pass : kPasses) {
      const size_t n = pass.gives_taps ? c.taps() : c.features();
      StoredTensor same(DType::kF32, n), mixed(DType::kF16, n);
      StoredTensor f32[] = {{DType::kF32, c.features()},
                            {DType::kF32, c.taps()},
                            {DType::kF32, c.features()}};
      for (int k = 0; k < 3; ++k) {
        for (size_t i = 0; i < wide[k].size(); ++i) {
          f32[k].Set(i, static_cast<float>(wide[k][i]));
        }
      }
      ConstTensor wide_in[] = {f32[0].tensor(), f32[1].tensor(),
                               f32[2].tensor()};
      ConstTensor mixed_in[] = {in[0].tensor(), in[1].tensor(), in[2].tensor()};
      pass.run(c, wide_in, same.tensor(), *context);
      pass.run(c, mixed_in, mixed.tensor(), *context);
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(mixed.Get(i), mixed.Rounded(static_cast<float>(same.Get(i))))
            << pass.name;
      }
    }
  });
}

// Wherever rows begin; gradients of logits where the logits were.
TEST(DynamicConv, StaysInsideItsTensorsAndMayOverwriteLogits) {
  ForEachTarget([] {
    for (const Case& c : Cases()) {
      SCOPED_TRACE(c.Name());
      for (size_t misalign : {0, 1, 3}) {
        GuardedBuffer<float> u(c.features(), misalign),
            logits(c.taps(), misalign), grad_y(c.features(), misalign);
        testing::FillRandom(u.span(), 1);
        testing::FillRandom(logits.span(), 2);
        testing::FillRandom(grad_y.span(), 3);
        ConstTensor in[] = {F32(u.data()), F32(logits.data()),
                            F32(grad_y.data())};
        TestContext context(2, DynamicConvWorkspace(c.shape));
        for (const Pass& pass : kPasses) {
          const size_t n = pass.gives_taps ? c.taps() : c.features();
          GuardedBuffer<float> y(n, misalign), aligned(n);
          pass.run(c, in, F32(y.data()), *context);
          pass.run(c, in, F32(aligned.data()), *context);
          y.CheckGuards(pass.name);
          ASSERT_EQ(std::memcmp(y.data(), aligned.data(), n * 4), 0);
          if (!pass.gives_taps) continue;
          pass.run(c, in, F32(logits.data()), *context);
          logits.CheckGuards("logits");
          ASSERT_EQ(std::memcmp(y.data(), logits.data(), n * 4), 0);
        }
      }
    }
  });
}

// To the bit, with the masks of their rows.
TEST(DynamicConv, BatchEqualsItsSentencesOneByOne) {
  ForEachFloatType([](DType dtype) {
    for (const Case& c : Cases()) {
      SCOPED_TRACE(c.Name());
      TestContext context(2, DynamicConvWorkspace(c.shape));
      StoredTensor u(dtype, c.features(), 1), logits(dtype, c.taps(), 2),
          grad_y(dtype, c.features(), 3);
      ConstTensor in[] = {u.tensor(), logits.tensor(), grad_y.tensor()};
      for (const Pass& pass : kPasses) {
        const size_t n = pass.gives_taps ? c.taps() : c.features();
        const int64_t row = pass.gives_taps ? c.shape.taps() : c.shape.features;
        StoredTensor whole(dtype, n), parts(dtype, n);
        pass.run(c, in, whole.tensor(), *context);
        for (int64_t s = 0; s < c.sentences().count; ++s) {
          const int64_t begin = c.sentences().begin(s);
          const int32_t end = static_cast<int32_t>(c.ends[s] - begin);
          const Sentences alone = {1, &end};
          const ConstTensor own_u = in[kU].From(begin * c.shape.features);
          const ConstTensor own_logits =
              in[kLogits].From(begin * c.shape.taps());
          const ConstTensor own_grad =
              in[kGradY].From(begin * c.shape.features);
          const Tensor y = parts.tensor().From(begin * row);
          const DropoutMask mask = c.mask(5 + begin);
          if (&pass == &kPasses[0]) {
            DynamicConv(c.shape, alone, mask, own_u, own_logits, y, *context);
          } else if (&pass == &kPasses[1]) {
            DynamicConvGradInput(c.shape, alone, mask, own_logits, own_grad, y,
                                 *context);
          } else {
            DynamicConvGradLogits(c.shape, alone, mask, own_u, own_logits,
                                  own_grad, y, *context);
          }
        }
        ASSERT_EQ(parts.Bytes(), whole.Bytes()) << pass.name;
      }
    }
  });
}

// Σ weights · y by each element of u and of the logits.
TEST(DynamicConv, ReferenceGradientIsTheComplexStep) {
  using Complex = std::complex<double>;
  constexpr double kStep = 1e-100;
  for (const Case& c : Cases()) {
    if (c.rows() > 50) continue;
    SCOPED_TRACE(c.Name());
    const auto random = [](size_t n, uint64_t seed) {
      std::vector<double> values;
      for (size_t i = 0; i < n; ++i) {
        values.push_back(testing::TestValue(seed, i));
      }
      return values;
    };
    const auto u = random(c.features(), 1), logits = random(c.taps(), 2);
    const auto grad_y = random(c.features(), 3);
    std::vector<double> grad_u(u.size()), grad_logits(logits.size());
    Pass::Define<double>(1, c, {u.data(), logits.data(), grad_y.data()},
                         grad_u.data());
    Pass::Define<double>(2, c, {u.data(), logits.data(), grad_y.data()},
                         grad_logits.data());
    std::vector<Complex> wide_u(u.begin(), u.end());
    std::vector<Complex> wide_logits(logits.begin(), logits.end());
    std::vector<Complex> y(u.size());
    const auto slope = [&](Complex& x) {
      x += Complex(0, kStep);
      Pass::Define<Complex>(0, c, {wide_u.data(), wide_logits.data(), nullptr},
                            y.data());
      x = x.real();
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += grad_y[i] * y[i].imag();
      return sum / kStep;
    };
    double norm = 0;
    for (double g : grad_y) norm += std::abs(g);
    const double bound = norm * std::numeric_limits<double>::epsilon() *
                         static_cast<double>(c.shape.kernel + 10);
    for (size_t i = 0; i < u.size(); i += 7) {
      ASSERT_NEAR(slope(wide_u[i]), grad_u[i], bound) << "u " << i;
    }
    for (size_t i = 0; i < logits.size(); i += 5) {
      ASSERT_NEAR(slope(wide_logits[i]), grad_logits[i], bound)
          << "logit " << i;
    }
  }
}

// What a token of another sentence holds is never looked at.
TEST(DynamicConv, ReadsNoOtherSentence) {
  const Case c = {{.features = 32, .heads = 2, .kernel = 7}, {4, 9, 14}, 0.1f};
  ForEachTarget([&] {
    TestContext context(1, DynamicConvWorkspace(c.shape));
    StoredTensor u(DType::kF32, c.features(), 1),
        logits(DType::kF32, c.taps(), 2), grad_y(DType::kF32, c.features(), 3);
    for (int64_t t : {3, 9}) {
      for (int64_t k = 0; k < c.shape.features; ++k) {
        const auto at = static_cast<size_t>(t * c.shape.features + k);
        u.Set(at, std::nanf(""));
        grad_y.Set(at, std::nanf(""));
      }
    }
    ConstTensor in[] = {u.tensor(), logits.tensor(), grad_y.tensor()};
    for (const Pass& pass : kPasses) {
      const int64_t row = pass.gives_taps ? c.shape.taps() : c.shape.features;
      StoredTensor y(DType::kF32, static_cast<size_t>(c.rows() * row));
      pass.run(c, in, y.tensor(), *context);
      for (int64_t i = 4 * row; i < 9 * row; ++i) {
        ASSERT_TRUE(std::isfinite(y.Get(static_cast<size_t>(i)))) << pass.name;
      }
    }
  });
}

TEST(DynamicConv, ScratchIsAsDocumented) {
  EXPECT_EQ(DynamicConvWorkspace({.features = 512, .heads = 4, .kernel = 31})
                .per_thread,
            46624u);
}

}  // namespace
}  // namespace thimble::kernels
