// SPDX-License-Identifier: Apache-2.0
//
// Fused plans compute what unfused ones compute, and store less.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/op.h"
#include "kernels/testing.h"
#include "ops/add.h"
#include "ops/batch_norm.h"
#include "ops/dropout.h"
#include "ops/norm_relu_conv.h"
#include "ops/normalize.h"
#include "thimble/model.h"
#include "thimble/plan.h"
#include "thimble/session.h"

namespace thimble {
namespace {

const ImageLayer kCifar = {.channels = 3, .height = 32, .width = 32};

template <typename Def>
int CountOps(const Plan& plan) {
  int count = 0;
  for (const Op& op : plan.graph().ops()) count += Is<Def>(op);
  return count;
}

Plan PlanOf(const std::string& name, const ModelOptions& options, bool fuse) {
  auto model = BuildModel(name, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  auto plan = MakePlan(*model, {.threads = 2, .fuse = fuse});
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_TRUE(ValidatePlan(*plan).ok());
  return *plan;
}

TEST(Fuse, KeepsNoNormalisedActivationsOfWrn28) {
  const Plan plan = PlanOf("wrn-28-2", {.batch = 100, .images = kCifar}, true);
  EXPECT_EQ(CountOps<ops::NormReluConv>(plan), 2 * 24);  // train and eval
  EXPECT_EQ(CountOps<ops::BatchNormTrain>(plan), 1);     // the last one
  EXPECT_EQ(CountOps<ops::Moments>(plan), 0);            // all are epilogues
  EXPECT_EQ(CountOps<ops::Normalize>(plan), 0);
  // Only the gradients of the three shortcuts that change the shape.
  EXPECT_EQ(CountOps<ops::Add>(plan), 3);
  EXPECT_LE(plan.arena_bytes(), 215'000'000u);
  EXPECT_LE(plan.arena_bytes(), plan.lower_bound() * 102 / 100);
  const auto step = static_cast<double>(plan.flops_step());
  const auto again = static_cast<double>(plan.flops_recompute());
  EXPECT_GT(again, 0);
  EXPECT_LE(step / (step - again), 1.01);
}

TEST(Fuse, LeavesAConvolutionBehindADropoutAsItIs) {
  const Plan plan =
      PlanOf("wrn-28-2", {.batch = 10, .images = kCifar, .dropout = 0.3}, true);
  // In training the second convolution of each block stands behind one; in
  // evaluation as well: fusing comes first, then the dropout is gone.
  EXPECT_EQ(CountOps<ops::NormReluConv>(plan), 2 * 12);
  EXPECT_EQ(CountOps<ops::Dropout>(plan), 12 + 12);  // and on gradients
  for (const ScheduledOp& s : plan.schedule()) {
    if (Is<ops::Dropout>(plan.graph().op(s.op))) {
      EXPECT_EQ(s.phase, Phase::kMicrobatch);
    }
  }
}

// One training step of a session with reproducible images; all gradients.
std::vector<float> GradientsOf(const Plan& plan, float* loss) {
  auto session = Session::Create(plan, {.poison = true});
  EXPECT_TRUE(session.ok());
  (*session)->Initialize(3);
  std::span<uint8_t> images = (*session)->TrainFeed<uint8_t>("images");
  for (size_t i = 0; i < images.size(); ++i) {
    images[i] = static_cast<uint8_t>(
        128 + static_cast<int>(127 * kernels::testing::TestValue(5, i)));
  }
  std::span<int32_t> labels = (*session)->TrainFeed<int32_t>("labels");
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = static_cast<int32_t>(i % 10);
  }
  *loss = (*session)->Differentiate(plan.batch()).loss;
  std::vector<float> gradients;
  for (const ParameterState& p : plan.parameters()) {
    const auto values = (*session)->Floats(p.gradient);
    gradients.insert(gradients.end(), values.begin(), values.end());
  }
  return gradients;
}

TEST(Fuse, AgreesWithTheUnfusedPlanWithinRounding) {
  for (const auto& [name, dropout] :
       {std::pair{"cnn", 0.0}, {"wrn-10-1", 0.0}, {"wrn-10-1", 0.3}}) {
    SCOPED_TRACE(::testing::Message() << name << " dropout " << dropout);
    const ModelOptions options{
        .batch = 6, .images = kCifar, .dropout = dropout};
    float fused_loss = 0;
    float plain_loss = 0;
    const auto fused = GradientsOf(PlanOf(name, options, true), &fused_loss);
    const auto plain = GradientsOf(PlanOf(name, options, false), &plain_loss);
    ASSERT_EQ(fused.size(), plain.size());
    double off = 0;
    double norm = 0;
    for (size_t i = 0; i < fused.size(); ++i) {
      off += std::pow(static_cast<double>(fused[i]) - plain[i], 2);
      norm += std::pow(static_cast<double>(plain[i]), 2);
    }
    // A dozen layers, each with sums of some thousand terms: the relative error
    // of a random walk over that many roundings.
    const double eps = std::numeric_limits<float>::epsilon();
    EXPECT_LE(std::sqrt(off / norm), eps * 12 * std::sqrt(6.0 * 1024));
    EXPECT_NEAR(fused_loss, plain_loss, 12 * eps * plain_loss);
    EXPECT_GT(norm, 0);
  }
}

}  // namespace
}  // namespace thimble
