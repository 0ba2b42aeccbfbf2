// SPDX-License-Identifier: Apache-2.0
//
// Steps without a gradient of their own: sums that are folded into the velocity
// and, at the end, into the parameter.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "kernels/block_tensor.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"
#include "kernels/update/reference.h"
#include "kernels/update/update.h"

namespace thimble::kernels {
namespace {

using testing::BlockTensor;
using testing::ForEachFloatType;
using testing::ForEachTarget;
using testing::StoredTensor;
using testing::TestContext;
using testing::TestValue;

constexpr SgdStep kFoldStep = {.learning_rate = 0.1f,
                               .momentum = 0.9f,
                               .weight_decay = 0.02f,
                               .gradient_scale = 0.25f,
                               .random = {3, 7, UpdateStream(2)}};
constexpr size_t kFoldLengths[] = {1, 64, 65, 700, 1601};

std::vector<float> FoldSums(size_t n, uint64_t seed) {
  std::vector<float> sums(n);
  for (size_t i = 0; i < n; ++i) sums[i] = TestValue(seed, i);
  return sums;
}

// In two pieces, the later one first.
bool Fold(const SgdStep& step, SgdFold form, bool look,
          const std::vector<float>& sums, Tensor param, Tensor velocity) {
  const auto n = static_cast<int64_t>(sums.size());
  const int64_t half = n / 128 * 64;
  const bool last = SgdFoldPiece(half, n - half, step, form, look,
                                 sums.data() + half, param, velocity);
  return SgdFoldPiece(0, half, step, form, look, sums.data(), param,
                      velocity) &&
         last;
}

// In f32, fused where the target has that.
float MulAdd(float a, float b, float c) {
  if (TargetName(ActiveTarget()) == "sse4") return a * b + c;
  return std::fma(a, b, c);
}

float FoldedOnce(SgdFold form, float w, float sum, float v) {
  const SgdStep& s = kFoldStep;
  if (form == SgdFold::kNext) return MulAdd(s.gradient_scale, sum, v);
  const float g = MulAdd(s.weight_decay, w, sum * s.gradient_scale);
  return MulAdd(s.momentum, v, g);
}

TEST(SgdFold, PutsEachPartIntoAVelocityOfAnyFloatType) {
  ForEachFloatType([](DType dtype) {
    for (const size_t n : kFoldLengths) {
      for (const SgdFold form : {SgdFold::kFirst, SgdFold::kNext}) {
        StoredTensor param(DType::kBF16, n, 1), velocity(dtype, n, 2);
        const std::vector<uint8_t> weights = param.Bytes();
        const std::vector<float> sums = FoldSums(n, 3);
        std::vector<double> want(n);
        for (size_t i = 0; i < n; ++i) {
          want[i] = velocity.Rounded(
              FoldedOnce(form, static_cast<float>(param.Get(i)), sums[i],
                         static_cast<float>(velocity.Get(i))));
        }
        EXPECT_TRUE(Fold(kFoldStep, form, true, sums, param.tensor(),
                         velocity.tensor()));
        EXPECT_EQ(velocity.Wide(), want) << "n=" << n;
        EXPECT_EQ(param.Bytes(), weights);
      }
    }
  });
}

TEST(SgdFold, PutsEachPartIntoAVelocityInBlocks) {
  ForEachTarget([] {
    for (const size_t n : kFoldLengths) {
      StoredTensor param(DType::kF16, n, 1);
      BlockTensor velocity(BlockCoding::kSigned, n);
      SgdStep step = kFoldStep;
      for (const SgdFold form :
           {SgdFold::kFirst, SgdFold::kNext, SgdFold::kFirst}) {
        // The same in f32, which is then encoded.
        std::vector<float> want = velocity.Values();
        const std::vector<float> sums = FoldSums(n, step.random.step);
        Fold(step, form, false, sums, param.tensor(), F32(want.data()));
        Fold(step, form, false, sums, param.tensor(), velocity.tensor());
        velocity.Expect(want, step.random.Next(1));
        ++step.random.step;
      }
    }
  });
}

// To the bit: a step in one part, then its end, is SgdUpdate without Nesterov;
// a whole step is SgdUpdate with and without.
TEST(SgdFold, OfOnePartIsTheOrdinaryStep) {
  ForEachFloatType([](DType dtype) {
    for (const size_t n : kFoldLengths) {
      const auto count = static_cast<int64_t>(n);
      for (const Rounding rounding :
           {Rounding::kNearest, Rounding::kStochastic, Rounding::kFeedback}) {
        for (const bool nesterov : {false, true}) {
          SgdStep step = kFoldStep;
          step.rounding = rounding;
          step.nesterov = nesterov;
          std::vector<float> sums = FoldSums(n, 4), v(n, 0.25f);
          StoredTensor param(dtype, n, 1);
          const TestContext context(2);
          SgdUpdate(count, step, param.tensor(), F32(sums.data()),
                    F32(v.data()), *context);
          std::vector<float> whole_v(n, 0.25f);
          StoredTensor whole(dtype, n, 1);
          Fold(step, SgdFold::kWhole, false, sums, whole.tensor(),
               F32(whole_v.data()));
          EXPECT_EQ(whole.Bytes(), param.Bytes());
          EXPECT_EQ(whole_v, v);
          if (nesterov) continue;
          for (const int threads : {1, 2, 3}) {
            std::vector<float> part_v(n, 0.25f);
            StoredTensor part(dtype, n, 1);
            const TestContext some(threads);
            Fold(step, SgdFold::kFirst, true, sums, part.tensor(),
                 F32(part_v.data()));
            SgdApply(count, step, part.tensor(), F32(part_v.data()), *some);
            EXPECT_EQ(part.Bytes(), param.Bytes());
            EXPECT_EQ(part_v, v);
          }
        }
      }
    }
  });
}

// Against the definition, in f64: K parts of a gradient are one of their sum.
TEST(SgdFold, OfSeveralPartsIsTheStepOfTheirSum) {
  ForEachTarget([] {
    constexpr size_t kCount = 700;
    constexpr int kParts = 5;
    std::vector<double> w(kCount), g(kCount), v(kCount, 0.5);
    std::vector<float> w32(kCount), v32(kCount, 0.5f);
    for (size_t i = 0; i < kCount; ++i) w[i] = w32[i] = TestValue(1, i);
    for (int k = 0; k < kParts; ++k) {
      const std::vector<float> sums =
          FoldSums(kCount, 10 + static_cast<uint64_t>(k));
      for (size_t i = 0; i < kCount; ++i) g[i] += sums[i];
      Fold(kFoldStep, k == 0 ? SgdFold::kFirst : SgdFold::kNext, true, sums,
           F32(w32.data()), F32(v32.data()));
    }
    const TestContext context(2);
    SgdApply(kCount, kFoldStep, F32(w32.data()), F32(v32.data()), *context);
    reference::SgdUpdate(kCount, kFoldStep, w.data(), g.data(), v.data());
    // Each of kParts + 3 operations rounds a value of at most 0.5 + 0.02 +
    // kParts / 4 in magnitude once.
    const double most = 0.52 + kParts * 0.25;
    const double bound = testing::SumErrorBound(kParts + 3, most);
    for (size_t i = 0; i < kCount; ++i) {
      EXPECT_NEAR(v32[i], v[i], bound) << i;
      EXPECT_NEAR(w32[i], w[i], testing::SumErrorBound(kParts + 5, 1 + most))
          << i;
    }
  });
}

TEST(SgdFold, LeavesAPieceAloneWhoseSumsAreNotFinite) {
  ForEachTarget([] {
    constexpr size_t kCount = 256;
    for (const SgdFold form :
         {SgdFold::kFirst, SgdFold::kNext, SgdFold::kWhole}) {
      for (const float wrong : {HUGE_VALF, -HUGE_VALF, NAN}) {
        StoredTensor param(DType::kF16, kCount, 1);
        const std::vector<uint8_t> weights = param.Bytes();
        std::vector<float> sums = FoldSums(kCount, 3), v(kCount, 0.5f);
        sums[100] = wrong;
        EXPECT_FALSE(SgdFoldPiece(0, kCount, kFoldStep, form, true, sums.data(),
                                  param.tensor(), F32(v.data())));
        EXPECT_EQ(v, std::vector<float>(kCount, 0.5f));
        EXPECT_EQ(param.Bytes(), weights);
      }
    }
  });
}

}  // namespace
}  // namespace thimble::kernels
