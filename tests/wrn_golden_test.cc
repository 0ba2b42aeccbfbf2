// SPDX-License-Identifier: Apache-2.0
//
// wrn-28-2 against values recorded from PyTorch in f64
// (tests/golden/wrn_28_2.json): ours may be kSlack times as wrong in f32 as
// PyTorch was in f32.
#include <gtest/gtest.h>

#include <algorithm>

#include "golden_check.h"
#include "graph/op.h"
#include "kernels/testing.h"
#include "ops/two_pass_grad.h"
#include "thimble/model.h"

namespace thimble::testing {
namespace {

// Sanitizers take seconds for one pass: there, one target and one step must do.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

class WrnGoldenTest : public GoldenTest {
 protected:
  void SetUp() override {
    ReadGolden("wrn_28_2.json");
    MakeWrn({});
  }

  void MakeWrn(const PlanOptions& plan_options) {
    const Json& input = golden_["input"];
    ModelOptions options;
    options.batch = golden_["batch"];
    options.images = {.channels = 3,
                      .height = 32,
                      .width = 32,
                      .mean = input["mean"],
                      .stddev = input["stddev"]};
    options.classes = golden_["classes"];
    MakeSession(BuildModel("wrn-28-2", options), {}, plan_options);
  }
};

TEST_F(WrnGoldenTest, LossAndGradientsAreThoseOfPyTorch) {
  const auto check = [this] {
    Load();
    ExpectFirstStep();
  };
  if (kSanitized) {
    check();
  } else {
    kernels::testing::ForEachTarget(check);
  }
}

TEST_F(WrnGoldenTest, SoTheyAreInTwoPasses) {
  MakeWrn({.recompute = "residual-2*", .two_pass = true});
  const auto is_second = [](const Op& op) {
    return Is<ops::NormReluConvGradRest>(op);
  };
  EXPECT_TRUE(std::ranges::any_of(plan_->graph().ops(), is_second));
  Load();
  ExpectFirstStep();
}

// On the best target alone: the others differ in the order of sums, which the
// test above covers.
TEST_F(WrnGoldenTest, LossesOfTenStepsAreThoseOfPyTorch) {
  const size_t steps = kSanitized ? 1 : RecordedSteps();
  Load();
  ExpectLossesOfSteps(steps);
  ExpectLossAfter(steps);
}

}  // namespace
}  // namespace thimble::testing
