// SPDX-License-Identifier: Apache-2.0
//
// The gradient of the input of a convolution with sparse weights, with the norm
// before it; and the scratch of all passes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/conv/reference.h"
#include "kernels/conv/test_norm_grad.h"
#include "kernels/sparse/test_sparse.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::CheckNormSums;
using testing::ForEachTarget;
using testing::FusedCase;
using testing::FusedGradForm;
using testing::InputSize;
using testing::kDensities;
using testing::kFusedGradForms;
using testing::Magnitudes;
using testing::NormGradCase;
using testing::NormGradResult;
using testing::OutputSize;
using testing::Over;
using testing::PatternOf;
using testing::Randoms;
using testing::SparseCases;
using testing::SparsePattern;
using testing::SparseWeight;
using testing::StoredTensor;
using testing::SumErrorBound;
using testing::TestContext;
using testing::WeightSize;
using testing::Wide;

void CheckGradInput(const FusedCase& c, const FusedGradForm& form,
                    const SparsePattern& pattern) {
  const Conv2dShape& s = c.shape;
  const int64_t pixels = s.in_height * s.in_width;
  StoredTensor grad_y(form.grad_y, OutputSize(c), 1);
  SparseWeight w(pattern, form.w, WeightSize(c), 2);
  StoredTensor x(form.x, InputSize(c), 3);
  const std::vector<float> scale = Randoms(s.in_channels, 4, 0.5f, 1.5f);
  const std::vector<float> shift = Randoms(s.in_channels, 5, -0.5f, 0.5f);
  const std::vector<float> mean = Randoms(s.in_channels, 6, -0.5f, 0.5f);
  const std::vector<float> inv_std = Randoms(s.in_channels, 7, 0.5f, 2.0f);
  std::vector<double> want(InputSize(c)), size(want.size());
  reference::Conv2dGradInput(s, c.images, grad_y.Wide().data(), w.Wide().data(),
                             want.data());
  reference::Conv2dGradInput(s, c.images, Magnitudes(grad_y.Wide()).data(),
                             Magnitudes(w.Wide()).data(), size.data());
  if (form.norm) {
    reference::Conv2dMask(c.images, s.in_channels, pixels, x.Wide().data(),
                          Wide(scale).data(), Wide(shift).data(), want.data());
  }
  const Conv2dReduction reduction{form.norm, c.images};
  const int64_t terms = s.out_channels * s.kernel_h * s.kernel_w;
  ForEachTarget([&] {
    std::vector<uint8_t> first;
    std::vector<float> first_gamma, first_beta;
    for (int threads : {1, 2, 3}) {
      SCOPED_TRACE(threads);
      const TestContext context(threads,
                                Conv2dGradInputWorkspace(s, reduction));
      StoredTensor got(form.grad_x, InputSize(c));
      std::vector<float> gamma(static_cast<size_t>(s.in_channels));
      std::vector<float> beta(gamma.size());
      Conv2dGradInputTarget target{.to = got.tensor()};
      if (form.norm) {
        target.x = x.tensor();
        target.scale = scale.data();
        target.shift = shift.data();
        target.mean = mean.data();
        target.inv_std = inv_std.data();
        target.grad_gamma = gamma.data();
        target.grad_beta = beta.data();
      }
      Conv2dGradInput(s, c.images, grad_y.tensor(), w.tensor(), target,
                      *context);
      for (size_t i = 0; i < want.size(); ++i) {
        const double bound = SumErrorBound(terms, size[i]);
        ASSERT_NEAR(got.Get(i), want[i],
                    bound + got.RoundingBound(std::abs(want[i]) + bound))
            << "element " << i;
      }
      if (form.norm) CheckNormSums(c, got, x, mean, inv_std, gamma, beta);
      if (threads == 1) {
        first = got.Bytes();
        first_gamma = gamma;
        first_beta = beta;
      }
      ASSERT_EQ(got.Bytes(), first);
      ASSERT_EQ(gamma, first_gamma);
      ASSERT_EQ(beta, first_beta);
    }
  });
}

// Each form with each case, in turn with another density and codec.
template <typename Check>
void ForEachGradCase(const Check& check) {
  size_t turn = 0;
  for (const FusedCase& c : SparseCases()) {
    for (const FusedGradForm& form : kFusedGradForms) {
      const double density = kDensities[turn % std::size(kDensities)];
      const IndexCodec codec =
          turn / 2 % 2 == 0 ? IndexCodec::kPacked : IndexCodec::kBitmap;
      SCOPED_TRACE(::testing::Message()
                   << "case " << turn / std::size(kFusedGradForms) << " form "
                   << (&form - kFusedGradForms) << " density " << density << " "
                   << IndexCodecName(codec));
      check(c, form, PatternOf(c.shape, density, codec));
      if (::testing::Test::HasFatalFailure()) return;
      ++turn;
    }
  }
}

TEST(SparseConv, GradInputMatchesReference) { ForEachGradCase(CheckGradInput); }

TEST(SparseConv, TwoPassesGiveTheBitsOfOne) {
  ForEachGradCase([](const FusedCase& c, const FusedGradForm& form,
                     const SparsePattern& pattern) {
    if (!form.norm) return;
    SparseWeight w(pattern, form.w, WeightSize(c), 2);
    NormGradCase test(c, form, w.tensor());
    ForEachTarget([&] {
      const NormGradResult alone = test.InOnePass(false);
      const NormGradResult sum = test.InOnePass(true);
      ASSERT_NE(alone.grad_x, sum.grad_x);
      ASSERT_EQ(test.InTwoPasses(false, Over::kNothing), alone);
      ASSERT_EQ(test.InTwoPasses(true, Over::kResidual), sum);
      if (form.x != form.grad_x) return;
      ASSERT_EQ(test.InTwoPasses(true, Over::kX), sum);
    });
  });
}

// Rows that have more entries than are unpacked at once, of either pass.
TEST(SparseConv, ARowMayBeLongerThanTheScratch) {
  for (const double density : {0.6, 1.0}) {
    for (const IndexCodec codec : {IndexCodec::kPacked, IndexCodec::kBitmap}) {
      const FusedCase long_rows =
          testing::WithBlocks({1200, 4, 5, 4, 3, 3, 1, 1}, 2, {2, 2});
      const FusedCase long_columns =
          testing::WithBlocks({6, 8, 8, 1500, 3, 3, 1, 1}, 2, {1, 1});
      for (const FusedCase& c : {long_rows, long_columns}) {
        const SparsePattern pattern = PatternOf(c.shape, density, codec);
        CheckGradInput(c, kFusedGradForms[0], pattern);
        SparseWeight w(pattern, DType::kF32, WeightSize(c), 2);
        StoredTensor x(DType::kF32, InputSize(c), 1);
        std::vector<double> want(OutputSize(c)), size(want.size());
        reference::Conv2dForward(c.shape, c.images, x.Wide().data(),
                                 w.Wide().data(), want.data());
        reference::Conv2dForward(c.shape, c.images, Magnitudes(x.Wide()).data(),
                                 Magnitudes(w.Wide()).data(), size.data());
        ForEachTarget([&] {
          const TestContext context(2, Conv2dForwardWorkspace(c.shape));
          StoredTensor y(DType::kF32, OutputSize(c));
          Conv2dForward(c.shape, c.images, {x.tensor()}, w.tensor(),
                        {.to = y.tensor()}, *context);
          for (size_t i = 0; i < want.size(); ++i) {
            ASSERT_NEAR(y.Get(i), want[i],
                        SumErrorBound(c.shape.in_channels * 9, size[i]));
          }
        });
      }
    }
  }
}

// All layers of WRN-28-2, with everything fused, for 100 images.
TEST(SparseConv, WorkspaceOfAStepStaysBelowItsBound) {
  constexpr size_t kBound = 128 * 1024;
  for (const WeightBlock& block : {WeightBlock{1, 1}, WeightBlock{2, 2}}) {
    for (Conv2dShape s : {Conv2dShape{16, 32, 32, 32, 3, 3, 1, 1},
                          {32, 32, 32, 32, 3, 3, 1, 1},
                          {32, 32, 32, 64, 3, 3, 2, 1},
                          {64, 16, 16, 64, 3, 3, 1, 1},
                          {64, 16, 16, 128, 3, 3, 2, 1},
                          {128, 8, 8, 128, 3, 3, 1, 1},
                          {32, 32, 32, 64, 1, 1, 2, 0}}) {
      s.blocks = block;
      const Conv2dReduction all = {true, 100};
      EXPECT_LE(TotalBytes(Conv2dForwardWorkspace(s, all), 1), kBound);
      EXPECT_LE(TotalBytes(Conv2dGradInputWorkspace(s, all), 1), kBound);
      EXPECT_LE(TotalBytes(Conv2dGradWeightWorkspace(s), 1), kBound);
      EXPECT_EQ(Conv2dGradWeightWorkspace(s), Conv2dGradPiecesWorkspace(s));
    }
  }
  // Larger ones and the bounds of a thread alone.
  for (Conv2dShape s : {Conv2dShape{512, 14, 14, 512, 3, 3, 1, 1},
                        {64, 56, 56, 64, 3, 3, 1, 1},
                        {64, 224, 224, 64, 3, 3, 1, 1},
                        {2048, 7, 7, 512, 1, 1, 1, 0},
                        {4, 224, 224, 64, 7, 7, 2, 3}}) {
    s.blocks = {1, 1};
    EXPECT_LE(Conv2dForwardWorkspace(s).per_thread, kBound);
    EXPECT_LE(Conv2dGradInputWorkspace(s).per_thread, kBound);
    EXPECT_LE(Conv2dGradWeightWorkspace(s).per_thread, kBound);
  }
}

}  // namespace
}  // namespace thimble::kernels
