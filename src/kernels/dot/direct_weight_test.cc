// SPDX-License-Identifier: Apache-2.0
//
// The gradient of a convolution's weights in bf16 by dot products, to the bit.
#include "kernels/dot/direct_weight.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/conv/conv.h"
#include "kernels/conv/test_fused.h"
#include "kernels/dot/direct_reference.h"
#include "kernels/dot/test_cases.h"
#include "kernels/dot/test_form.h"
#include "kernels/stored_tensor.h"

namespace thimble::kernels {
namespace {

using testing::ExpectBytes;
using testing::ForEachDotForm;
using testing::FusedCase;
using testing::Randoms;
using testing::StoredTensor;
using testing::TestContext;

bool MakePlannedPass(const Conv2dShape& s, dot::DirectWeightPass& pass) {
  return dot::MakeDirectWeightPass(s, conv::WeightScratchOf(s), pass) &&
         pass.Bytes() <= Conv2dGradWeightWorkspace(s).per_thread;
}

class WeightGradCase {
 public:
  explicit WeightGradCase(const FusedCase& c)
      : c_(c),
        x_(DType::kBF16, testing::InputSize(c), 1),
        grad_y_(DType::kBF16, testing::OutputSize(c), 2),
        scale_(Randoms(c.shape.in_channels, 4, 0.5f, 1.5f)),
        shift_(Randoms(c.shape.in_channels, 5, -0.5f, 0.5f)) {}

  void Check(const dot::DirectWeightPass& pass, bool prologue, DType to) {
    Conv2dInput input{.x = x_.tensor()};
    if (prologue) input = {x_.tensor(), scale_.data(), shift_.data(), true};
    const Conv2dShape& s = c_.shape;
    const std::vector<float> sums = dot::DirectGradWeight(
        s, c_.images,
        dot::DirectInput(s, c_.images, x_.Floats(), input.scale, input.shift,
                         input.relu),
        grad_y_.Floats(), pass.images, pass.planes.block_rows);
    StoredTensor before(to, sums.size(), 3), stored(to, sums.size()),
        added(to, sums.size());
    for (size_t i = 0; i < sums.size(); ++i) {
      stored.Set(i, sums[i]);
      added.Set(i, static_cast<float>(before.Get(i)) + sums[i]);
    }
    ForEachDotForm([&] {
      for (const int threads : {1, 2, 3}) {
        SCOPED_TRACE(threads);
        const TestContext context(threads, Conv2dGradWeightWorkspace(s));
        StoredTensor got(to, sums.size());
        Conv2dGradWeight(s, c_.images, input, grad_y_.tensor(),
                         {.to = got.tensor()}, *context);
        ExpectBytes(got.Bytes(), stored.Bytes());
        got.CopyFrom(before);
        Conv2dGradWeight(s, c_.images, input, grad_y_.tensor(),
                         {.to = got.tensor(), .accumulate = true}, *context);
        ExpectBytes(got.Bytes(), added.Bytes());
      }
    });
  }

 private:
  FusedCase c_;
  StoredTensor x_, grad_y_;
  std::vector<float> scale_, shift_;
};

void CheckCases(std::span<const FusedCase> cases) {
  for (const FusedCase& c : cases) {
    SCOPED_TRACE(::testing::Message() << "case " << (&c - cases.data()));
    dot::DirectWeightPass pass;
    ASSERT_TRUE(MakePlannedPass(c.shape, pass));
    WeightGradCase test(c);
    test.Check(pass, false, DType::kBF16);
    test.Check(pass, true, DType::kBF16);
    test.Check(pass, true, DType::kF32);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(DirectWeightDots, GradientIsTheSumOfPairsToTheBit) {
  CheckCases(testing::kDirectCases);
}

TEST(DirectWeightDots, LargeShapesAreTheSumOfPairsToTheBit) {
  CheckCases(testing::kLargeDirectCases);
}

// Every shape that a model here has is taken within today's scratch; those of
// WRN-28-2 are work for two threads, whole images at a time.
TEST(DirectWeightDots, UnitsFitIntoTheScratchOfOtherWays) {
  for (const Conv2dShape& s : testing::kModelShapes) {
    dot::DirectWeightPass pass;
    EXPECT_TRUE(MakePlannedPass(s, pass))
        << "shape " << (&s - testing::kModelShapes);
    EXPECT_GE(pass.blocks() * pass.chunks(), 2);
  }
}

}  // namespace
}  // namespace thimble::kernels
