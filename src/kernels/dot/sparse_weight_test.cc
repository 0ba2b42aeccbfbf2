// SPDX-License-Identifier: Apache-2.0
//
// The gradient of sparse weights in bf16 by dot products, to the bit.
#include "kernels/dot/sparse_weight.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/conv/conv.h"
#include "kernels/conv/test_fused.h"
#include "kernels/dot/sparse.h"
#include "kernels/dot/sparse_reference.h"
#include "kernels/dot/test_cases.h"
#include "kernels/dot/test_form.h"
#include "kernels/dot/test_sparse.h"
#include "kernels/stored_tensor.h"

namespace thimble::kernels {
namespace {

using testing::ExpectBytes;
using testing::ForEachDotForm;
using testing::FusedCase;
using testing::Randoms;
using testing::SparseCase;
using testing::SparseWeightsOf;
using testing::StoredTensor;
using testing::TestContext;

// Keeps what it is given, and sees to it that pieces are whole and come once.
class KeptPieces final : public PieceSink {
 public:
  explicit KeptPieces(size_t size) : sums_(size), taken_(size) {}
  void Take(int64_t first, int64_t n, float* sums) const override {
    const auto end = static_cast<size_t>(first + n);
    EXPECT_EQ(first % ConstTensor::kBlock, 0);
    EXPECT_TRUE(n % ConstTensor::kBlock == 0 || end == sums_.size());
    ASSERT_LE(end, sums_.size());
    for (auto i = static_cast<size_t>(first); i < end; ++i) {
      EXPECT_EQ(taken_[i], 0);
      taken_[i] = 1;
      sums_[i] = *sums;
      *sums++ = 0.0f;
    }
  }
  const std::vector<float>& sums() const { return sums_; }

 private:
  mutable std::vector<float> sums_;
  mutable std::vector<char> taken_;
};

class WeightGradCase {
 public:
  explicit WeightGradCase(const SparseCase& c)
      : c_(testing::InBlocks(c)),
        weights_(c),
        x_(DType::kBF16, testing::InputSize(c_), 1),
        grad_y_(DType::kBF16, testing::OutputSize(c_), 2),
        scale_(Randoms(c_.shape.in_channels, 4, 0.5f, 1.5f)),
        shift_(Randoms(c_.shape.in_channels, 5, -0.5f, 0.5f)) {}

  void Check(bool prologue, DType to) {
    Conv2dInput input{.x = x_.tensor()};
    if (prologue) input = {x_.tensor(), scale_.data(), shift_.data(), true};
    const std::vector<float> sums = Sums(input);
    StoredTensor before(to, sums.size(), 3), stored(to, sums.size()),
        added(to, sums.size());
    for (size_t i = 0; i < sums.size(); ++i) {
      stored.Set(i, sums[i]);
      added.Set(i, static_cast<float>(before.Get(i)) + sums[i]);
    }
    ForEachDotForm([&] {
      for (const int threads : {1, 2, 3}) {
        SCOPED_TRACE(threads);
        const TestContext context(threads, Conv2dGradWeightWorkspace(c_.shape));
        StoredTensor got(to, sums.size());
        Run(input, {.to = got.tensor()}, *context);
        ExpectBytes(got.Bytes(), stored.Bytes());
        got.CopyFrom(before);
        Run(input, {.to = got.tensor(), .accumulate = true}, *context);
        ExpectBytes(got.Bytes(), added.Bytes());
        const TestContext pieces(threads, Conv2dGradPiecesWorkspace(c_.shape));
        const KeptPieces kept(sums.size());
        Run(input, {.to = Tensor::None(), .pieces = &kept}, *pieces);
        ASSERT_EQ(kept.sums(), sums);
      }
    });
  }

 private:
  std::vector<float> Sums(const Conv2dInput& input) {
    const Conv2dShape& s = c_.shape;
    dot::SparseWeightPass pass;
    EXPECT_TRUE(dot::MakeSparseWeightPass(s, pass));
    EXPECT_LE(pass.Bytes(), dot::SparseRoom(s));
    const std::vector<float> dense = dot::SparseGradWeight(
        s, c_.images,
        dot::DirectInput(s, c_.images, x_.Floats(), input.scale, input.shift,
                         input.relu),
        grad_y_.Floats(), weights_.Dense(testing::WeightSize(c_)).kept,
        pass.tiles.tile.height);
    std::vector<float> sums;
    weights_.ForKept([&](size_t at) { sums.push_back(dense[at]); });
    return sums;
  }

  void Run(const Conv2dInput& input, Conv2dGradWeightTarget target,
           const KernelContext& context) {
    target.pattern = &weights_.pattern();
    Conv2dGradWeight(c_.shape, c_.images, input, grad_y_.tensor(), target,
                     context);
  }

  FusedCase c_;
  SparseWeightsOf weights_;
  StoredTensor x_, grad_y_;
  std::vector<float> scale_, shift_;
};

void CheckCases(std::span<const SparseCase> cases) {
  for (const SparseCase& c : cases) {
    SCOPED_TRACE(::testing::Message() << "case " << (&c - cases.data()));
    WeightGradCase test(c);
    test.Check(false, DType::kBF16);
    test.Check(true, DType::kF16);
    test.Check(true, DType::kF32);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(SparseWeightDots, GradientIsTheSumOfPairsToTheBit) {
  CheckCases(testing::kSparseCases);
}

TEST(SparseWeightDots, LargeShapesAreTheSumOfPairsToTheBit) {
  CheckCases(testing::kLargeSparseCases);
}

// All convolutions of wide residual nets but the first have these ways.
TEST(SparseWeightDots, WideResidualNetsHaveAWayInEveryPass) {
  for (const int64_t widen : {1, 2, 4, 10}) {
    for (int64_t group = 0; group < 3; ++group) {
      const int64_t width = 32 >> group, channels = (16 * widen) << group;
      const int64_t stride = group == 0 ? 1 : 2;
      const int64_t before = group == 0 ? 16 : channels / 2;
      Conv2dShape shapes[] = {
          {channels, width, width, channels, 3, 3, 1, 1},
          {before, stride * width, stride * width, channels, 3, 3, stride, 1},
          {before, stride * width, stride * width, channels, 1, 1, stride, 0}};
      for (Conv2dShape& s : shapes) {
        SCOPED_TRACE(::testing::Message()
                     << s.in_channels << " to " << s.out_channels);
        s.blocks = WeightBlock();
        EXPECT_GT(dot::SparseBytes(s, true), 0u);
        EXPECT_GT(dot::SparseBytes(s, false), 0u);
        EXPECT_GT(dot::SparseWeightBytes(s), 0u);
        EXPECT_LE(dot::SparseBytes(s, true),
                  static_cast<size_t>(dot::SparseRoom(s)));
        EXPECT_LE(dot::SparseBytes(s, false),
                  static_cast<size_t>(dot::SparseRoom(s)));
        EXPECT_LE(dot::SparseWeightBytes(s),
                  static_cast<size_t>(dot::SparseRoom(s)));
      }
    }
  }
}

}  // namespace
}  // namespace thimble::kernels
