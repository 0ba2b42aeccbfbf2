// SPDX-License-Identifier: Apache-2.0
//
// The convolution with sparse weights and the gradient of these, in every
// storage type, with prologue and epilogues.
#include "kernels/sparse/sparse_conv.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/conv/reference.h"
#include "kernels/sparse/test_sparse.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::Activate;
using testing::Activated;
using testing::CheckStatistics;
using testing::Coefficients;
using testing::ForEachTarget;
using testing::FusedCase;
using testing::FusedForm;
using testing::InputOf;
using testing::InputSize;
using testing::kDensities;
using testing::kFusedForms;
using testing::Magnitudes;
using testing::OutputSize;
using testing::PatternOf;
using testing::SparseCases;
using testing::SparsePattern;
using testing::SparseWeight;
using testing::StoredTensor;
using testing::SumErrorBound;
using testing::TestContext;
using testing::WeightSize;

void CheckForward(const FusedCase& c, const FusedForm& form,
                  const SparsePattern& pattern) {
  const Conv2dShape& s = c.shape;
  StoredTensor x(form.x, InputSize(c), 1), residual(form.y, OutputSize(c), 3);
  SparseWeight w(pattern, form.w, WeightSize(c), 2);
  const Coefficients k(form, s.in_channels);
  const Activated u = Activate(c, form, x, k);
  std::vector<double> want(OutputSize(c)), size(want.size()), off(want.size());
  reference::Conv2dForward(s, c.images, u.values.data(), w.Wide().data(),
                           want.data());
  reference::Conv2dForward(s, c.images, Magnitudes(u.values).data(),
                           Magnitudes(w.Wide()).data(), size.data());
  reference::Conv2dForward(s, c.images, u.bounds.data(),
                           Magnitudes(w.Wide()).data(), off.data());
  const Conv2dReduction reduction{form.reduce, c.images};
  const int64_t terms = s.in_channels * s.kernel_h * s.kernel_w + 1;
  ForEachTarget([&] {
    std::vector<uint8_t> first;
    std::vector<float> first_mean, first_variance;
    for (int threads : {1, 2, 3}) {
      SCOPED_TRACE(threads);
      const TestContext context(threads, Conv2dForwardWorkspace(s, reduction));
      StoredTensor y(form.y, OutputSize(c), 3);  // also the residual, in place
      std::vector<float> mean(static_cast<size_t>(s.out_channels));
      std::vector<float> variance(mean.size());
      Conv2dOutput output{.to = y.tensor()};
      // Once in place, once from elsewhere.
      if (form.residual) {
        output.residual = threads == 1 ? residual.tensor() : y.tensor();
      }
      if (form.reduce) {
        output.mean = mean.data();
        output.variance = variance.data();
      }
      Conv2dForward(s, c.images, InputOf(form, x, k), w.tensor(), output,
                    *context);
      for (size_t i = 0; i < want.size(); ++i) {
        const double r = form.residual ? residual.Get(i) : 0.0;
        const double bound =
            SumErrorBound(terms, size[i] + std::abs(r)) + off[i];
        const double value = want[i] + r;
        ASSERT_NEAR(y.Get(i), value,
                    bound + y.RoundingBound(std::abs(value) + bound))
            << "element " << i;
      }
      if (form.reduce) CheckStatistics(c, y, mean, variance);
      if (threads == 1) {
        first = y.Bytes();
        first_mean = mean;
        first_variance = variance;
      }
      ASSERT_EQ(y.Bytes(), first);
      ASSERT_EQ(mean, first_mean);
      ASSERT_EQ(variance, first_variance);
    }
  });
}

// Each form with each case, in turn with another density and codec.
template <typename Check>
void ForEachCase(const Check& check) {
  size_t turn = 0;
  for (const FusedCase& c : SparseCases()) {
    for (const FusedForm& form : kFusedForms) {
      const double density = kDensities[turn % std::size(kDensities)];
      const IndexCodec codec =
          turn / 2 % 2 == 0 ? IndexCodec::kPacked : IndexCodec::kBitmap;
      SCOPED_TRACE(::testing::Message()
                   << "case " << turn / std::size(kFusedForms) << " form "
                   << (&form - kFusedForms) << " density " << density << " "
                   << IndexCodecName(codec));
      check(c, form, PatternOf(c.shape, density, codec));
      if (::testing::Test::HasFatalFailure()) return;
      ++turn;
    }
    ++turn;
  }
}

TEST(SparseConv, ForwardMatchesReference) { ForEachCase(CheckForward); }

void CheckGradWeight(const FusedCase& c, const FusedForm& form,
                     const SparsePattern& pattern) {
  const Conv2dShape& s = c.shape;
  const bool accumulate = form.reduce;
  const std::vector<size_t>& places = pattern.places();
  StoredTensor x(form.x, InputSize(c), 1), grad_y(form.y, OutputSize(c), 2);
  StoredTensor before(form.w, places.size(), 3);
  const Coefficients k(form, s.in_channels);
  const Activated u = Activate(c, form, x, k);
  std::vector<double> want(WeightSize(c)), size(want.size()), off(want.size());
  reference::Conv2dGradWeight(s, c.images, u.values.data(),
                              grad_y.Wide().data(), want.data());
  reference::Conv2dGradWeight(s, c.images, Magnitudes(u.values).data(),
                              Magnitudes(grad_y.Wide()).data(), size.data());
  reference::Conv2dGradWeight(s, c.images, u.bounds.data(),
                              Magnitudes(grad_y.Wide()).data(), off.data());
  const int64_t terms = c.images * s.out_height() * s.out_width() + 1;
  ForEachTarget([&] {
    std::vector<uint8_t> first;
    for (int threads : {1, 2, 3}) {
      SCOPED_TRACE(threads);
      const TestContext context(threads, Conv2dGradWeightWorkspace(s));
      StoredTensor got(form.w, places.size(), 3);
      Conv2dGradWeight(s, c.images, InputOf(form, x, k), grad_y.tensor(),
                       {.to = got.tensor(),
                        .accumulate = accumulate,
                        .pattern = &pattern.pattern()},
                       *context);
      for (size_t i = 0; i < places.size(); ++i) {
        const size_t at = places[i];
        const double b = accumulate ? before.Get(i) : 0.0;
        const double bound =
            SumErrorBound(terms, size[at] + std::abs(b)) + off[at];
        ASSERT_NEAR(got.Get(i), want[at] + b,
                    bound + got.RoundingBound(std::abs(want[at] + b) + bound))
            << "value " << i;
      }
      if (threads == 1) first = got.Bytes();
      ASSERT_EQ(got.Bytes(), first);
    }
  });
}

TEST(SparseConv, GradWeightMatchesReference) { ForEachCase(CheckGradWeight); }

// Keeps what it is handed, and checks that pieces are whole blocks.
class Keep final : public PieceSink {
 public:
  explicit Keep(size_t n) : values_(n, NAN), met_(n) {}
  void Take(int64_t first, int64_t n, float* sums) const override {
    constexpr int64_t kBlock = ConstTensor::kBlock;
    const auto end = static_cast<int64_t>(values_.size());
    EXPECT_EQ(first % kBlock, 0);
    EXPECT_TRUE(n % kBlock == 0 || first + n == end);
    for (int64_t i = 0; i < n; ++i) {
      values_[static_cast<size_t>(first + i)] = sums[i];
      ++met_[static_cast<size_t>(first + i)];
      sums[i] = NAN;  // a sink may change them
    }
  }
  std::vector<float> Values() const {
    for (const std::atomic<int>& met : met_) EXPECT_EQ(met.load(), 1);
    return values_;
  }

 private:
  mutable std::vector<float> values_;
  mutable std::vector<std::atomic<int>> met_;
};

TEST(SparseConv, PiecesAreWhatWouldBeStored) {
  for (const FusedCase& c : SparseCases()) {
    const Conv2dShape& s = c.shape;
    for (const double density : kDensities) {
      SCOPED_TRACE(density);
      const SparsePattern pattern =
          PatternOf(s, density, IndexCodec::kBitmap, 5);
      const size_t n = pattern.places().size();
      StoredTensor x(DType::kF32, InputSize(c), 1);
      StoredTensor grad_y(DType::kF32, OutputSize(c), 2);
      ForEachTarget([&] {
        StoredTensor stored(DType::kF32, n);
        const TestContext one(1, Conv2dGradWeightWorkspace(s));
        Conv2dGradWeight(s, c.images, {x.tensor()}, grad_y.tensor(),
                         {.to = stored.tensor(), .pattern = &pattern.pattern()},
                         *one);
        for (int threads : {1, 2, 3}) {
          const TestContext context(threads, Conv2dGradPiecesWorkspace(s));
          const Keep keep(n);
          Conv2dGradWeight(s, c.images, {x.tensor()}, grad_y.tensor(),
                           {.to = Tensor::None(),
                            .pieces = &keep,
                            .pattern = &pattern.pattern()},
                           *context);
          ASSERT_EQ(keep.Values(), stored.Floats());
        }
      });
    }
  }
}

TEST(SparseConv, NoImagesGiveZeroWeightGradients) {
  const FusedCase c = testing::WithBlocks({6, 8, 8, 4, 3, 3, 1, 1}, 0, {2, 2});
  const SparsePattern pattern = PatternOf(c.shape, 0.5, IndexCodec::kPacked);
  ForEachTarget([&] {
    StoredTensor none(DType::kF32, 0),
        got(DType::kF16, pattern.places().size(), 1);
    SparseWeight w(pattern, DType::kF16, WeightSize(c), 2);
    const TestContext forward(2, Conv2dForwardWorkspace(c.shape));
    Conv2dForward(c.shape, 0, {none.tensor()}, w.tensor(), {none.tensor()},
                  *forward);
    const TestContext context(2, Conv2dGradWeightWorkspace(c.shape));
    Conv2dGradWeight(c.shape, 0, {none.tensor()}, none.tensor(),
                     {.to = got.tensor(), .pattern = &pattern.pattern()},
                     *context);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got.Get(i), 0.0);
  });
}

TEST(SparseConv, WeightsAreSparseWhereTheShapeSaysSo) {
  const FusedCase c = testing::WithBlocks({2, 4, 4, 2, 1, 1, 1, 0}, 1, {1, 1});
  StoredTensor x(DType::kF32, InputSize(c), 1), w(DType::kF32, 4, 2);
  StoredTensor y(DType::kF32, OutputSize(c));
  const TestContext context(1, Conv2dForwardWorkspace(c.shape));
  EXPECT_DEATH(Conv2dForward(c.shape, 1, {x.tensor()}, w.tensor(),
                             {.to = y.tensor()}, *context),
               "check failed");
}

}  // namespace
}  // namespace thimble::kernels
