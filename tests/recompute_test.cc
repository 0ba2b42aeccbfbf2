// SPDX-License-Identifier: Apache-2.0
//
// What is dropped and computed again changes no bit of what is learned, and
// takes the bytes and FLOPs that it should.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "closest_plan.h"
#include "few_records.h"
#include "graph/op.h"
#include "ops/dropout.h"
#include "thimble/data.h"
#include "thimble/model.h"
#include "thimble/network.h"
#include "thimble/plan.h"
#include "thimble/trainer.h"

namespace thimble::testing {
namespace {

const ImageLayer kCifar = {.channels = 3, .height = 32, .width = 32};

const std::vector<std::string> kStrategies = {
    "no-bn",       "every-1",     "every-3",     "residual-1", "residual-2",
    "residual-1*", "residual-2s", "residual-3*", "sqrt",       "recursive-1",
    "recursive-2", "revolve",     "revolve-1"};

Plan PlanOf(const Model& model, const PlanOptions& options) {
  Result<Plan> plan = MakePlan(model, options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  const Status status = ValidatePlan(*plan);
  EXPECT_TRUE(status.ok()) << options.recompute << ": " << status.message();
  return *std::move(plan);
}

Model ModelOf(const std::string& name, int64_t batch) {
  Result<Model> model = BuildModel(name, {.batch = batch, .images = kCifar});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

// scripts/test --long takes the network that users train, and more steps.
bool IsLong() { return std::getenv("THIMBLE_LONG") != nullptr; }

class Recomputation : public ::testing::Test {
 protected:
  void SetUp() override {
    auto full = OpenDataset("synthetic-cifar", {});
    ASSERT_TRUE(full.ok()) << full.status().message();
    data_ = std::make_unique<FewRecords>(
        *std::move(full), FewRecords::Sizes{.train = 10, .test = 2});
  }

  // After steps of which the third has a batch that is not full.
  std::string WeightsOf(const Plan& plan, bool poison) {
    TrainOptions options;
    options.steps = IsLong() ? 20 : 4;
    options.learning_rate = 0.05;
    options.poison = poison;
    const Result<TrainSummary> summary =
        Train(plan, *data_, options, nullptr, {.keep_last = true});
    EXPECT_TRUE(summary.ok()) << summary.status().message();
    return summary->weights_sha256;
  }

  const Model model_ = ModelOf(IsLong() ? "wrn-28-2" : "wrn-16-0.5", 4);
  std::unique_ptr<Dataset> data_;
};

TEST_F(Recomputation, EveryStrategyLearnsTheSameWeights) {
  const std::string weights = WeightsOf(PlanOf(model_, {}), /*poison=*/false);
  for (const std::string& strategy : kStrategies) {
    SCOPED_TRACE(strategy);
    const Plan one = PlanOf(model_, {.recompute = strategy});
    const Plan two = PlanOf(model_, {.threads = 2, .recompute = strategy});
    EXPECT_EQ(WeightsOf(one, /*poison=*/true), weights) << "poison";
    EXPECT_EQ(WeightsOf(two, /*poison=*/false), weights) << "2 threads";
  }
}

TEST_F(Recomputation, UnfusedOpsAreRepeatedToTheSameBits) {
  const Model model = ModelOf("wrn-16-0.5", 4);
  const Plan none = PlanOf(model, {.fuse = false});
  const std::string weights = WeightsOf(none, /*poison=*/false);
  for (const std::string strategy : {"no-bn", "residual-2*", "recursive-1"}) {
    const Plan plan = PlanOf(model, {.fuse = false, .recompute = strategy});
    EXPECT_EQ(WeightsOf(plan, /*poison=*/true), weights) << strategy;
  }
}

TEST_F(Recomputation, DropoutMasksAreTheSameWhenComputedAgain) {
  const Result<Model> model =
      BuildModel("wrn-16-0.5", {.batch = 4, .images = kCifar, .dropout = 0.3});
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::string weights = WeightsOf(PlanOf(*model, {}), /*poison=*/false);
  for (const std::string strategy :
       {"no-bn", "every-2", "residual-1", "residual-2*", "sqrt", "recursive-1",
        "revolve"}) {
    const Plan plan = PlanOf(*model, {.recompute = strategy});
    EXPECT_EQ(WeightsOf(plan, /*poison=*/true), weights) << strategy;
    const auto again = [](const Plan& p) {
      for (const ScheduledOp& s : p.schedule()) {
        if (s.recompute && Is<ops::Dropout>(p.graph().op(s.op))) {
          return true;
        }
      }
      return false;
    };
    EXPECT_EQ(again(plan), strategy != "no-bn") << strategy;
  }
}

TEST_F(Recomputation, AutoLearnsTheSameWeightsAtEveryBudget) {
  const Plan none = PlanOf(model_, {});
  const std::string weights = WeightsOf(none, /*poison=*/false);
  const uint64_t most = none.arena_bytes();
  const Result<Plan> smallest =
      MakeClosestPlan(model_, {.recompute = "auto", .budget = 0});
  ASSERT_TRUE(smallest.ok());
  const uint64_t least = smallest->arena_bytes();
  ASSERT_LT(least, most);
  for (uint64_t k = 0; k < 5; ++k) {
    const uint64_t budget = least + (most - least) * k / 4;
    const Plan one = PlanOf(model_, {.recompute = "auto", .budget = budget});
    // Two threads want more scratch.
    const Plan two = PlanOf(
        model_,
        {.threads = 2, .recompute = "auto", .budget = budget + (1 << 20)});
    EXPECT_EQ(WeightsOf(one, /*poison=*/true), weights) << budget;
    EXPECT_EQ(WeightsOf(two, /*poison=*/false), weights) << budget;
  }
}

TEST(Checkpoint, WithoutBatchNormsIsAsWithoutCheckpointsWhereTheyAreFused) {
  const Model model = ModelOf("wrn-16-0.5", 4);
  const Plan none = PlanOf(model, {});
  const Plan no_bn = PlanOf(model, {.recompute = "no-bn"});
  EXPECT_EQ(no_bn.arena_bytes(), none.arena_bytes());
  EXPECT_EQ(no_bn.flops_step(), none.flops_step());
  const Plan none_apart = PlanOf(model, {.fuse = false});
  const Plan no_bn_apart = PlanOf(model, {.fuse = false, .recompute = "no-bn"});
  EXPECT_LT(no_bn_apart.arena_bytes(), none_apart.arena_bytes());
  EXPECT_GT(no_bn_apart.flops_step(), none_apart.flops_step());
}

TEST(Checkpoint, ASegmentsLastConvolutionIsNotComputedAgain) {
  // residual-1 makes the first convolution of each block again, and the stem.
  const Plan plan =
      PlanOf(ModelOf("wrn-16-0.5", 4), {.recompute = "residual-1"});
  std::vector<std::string> again;
  for (const ScheduledOp& s : plan.schedule()) {
    if (s.recompute) again.push_back(plan.graph().op(s.op).name);
  }
  EXPECT_EQ(again, (std::vector<std::string>{
                       "stage3.block2.conv1.again", "stage3.block1.conv1.again",
                       "stage2.block2.conv1.again", "stage2.block1.conv1.again",
                       "stage1.block2.conv1.again", "stem.again",
                       "stage1.block1.conv1.again"}));
}

TEST(Checkpoint, ChainsWithoutBranchesAreCutToo) {
  const Result<Model> model = BuildModel("cnn", {.batch = 64});
  ASSERT_TRUE(model.ok());
  const Plan none = PlanOf(*model, {});
  for (const std::string strategy : {"residual-2", "sqrt", "recursive-1"}) {
    const Plan plan = PlanOf(*model, {.recompute = strategy});
    EXPECT_LT(plan.arena_bytes(), none.arena_bytes()) << strategy;
    EXPECT_GT(plan.flops_recompute(), none.flops_recompute()) << strategy;
  }
}

// Two streams that feed each other, as a recurrent network's state: nowhere but
// at the ends is one value alone carried on.
Model TwoStreams(const ImageLayer& layer, int64_t batch, int steps) {
  constexpr int64_t kFeatures = 8;
  Network net("streams", batch);
  const ValueId images = net.Flatten(net.Images(layer));
  ValueId h = net.Linear("h", images, kFeatures);
  ValueId c = net.Linear("c", images, kFeatures);
  for (int t = 0; t < steps; ++t) {
    const std::string name = std::to_string(t);
    const ValueId made = net.Linear("h" + name, h, kFeatures);
    h = net.Relu(net.Add(made, c));
    c = net.Relu(net.Linear("c" + name, c, kFeatures, /*bias=*/false));
  }
  Result<Model> model = net.Finish(net.Linear("head", net.Add(h, c), 10));
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

TEST(Checkpoint, NetworksThatCarryAStateAreCutAtEveryStep) {
  const Model model =
      TwoStreams({.channels = 1, .height = 2, .width = 2}, 1000, 60);
  const Plan none = PlanOf(model, {});
  const Plan sqrt = PlanOf(model, {.recompute = "sqrt"});
  EXPECT_LT(3 * sqrt.arena_bytes(), none.arena_bytes());
  const Result<Plan> least =
      MakeClosestPlan(model, {.recompute = "auto", .budget = 0});
  ASSERT_TRUE(least.ok());
  EXPECT_LT(5 * least->arena_bytes(), none.arena_bytes());
}

TEST_F(Recomputation, NetworksThatCarryAStateLearnTheSameWeights) {
  for (const Model& model :
       {TwoStreams(kCifar, 4, 20), ModelOf("lstm-2-8-32", 4)}) {
    const std::string weights = WeightsOf(PlanOf(model, {}), /*poison=*/false);
    for (const std::string strategy :
         {"every-3", "sqrt", "recursive-1", "revolve"}) {
      const Plan plan = PlanOf(model, {.recompute = strategy});
      EXPECT_EQ(WeightsOf(plan, /*poison=*/true), weights)
          << model.name << " " << strategy;
    }
  }
}

TEST(Checkpoint, LstmsTakeLittleMoreThanTheStatesBetweenSteps) {
  const Result<Model> model = BuildModel("lstm-1-32-98", {.batch = 100});
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Plan none = PlanOf(*model, {});
  const Plan sqrt = PlanOf(*model, {.recompute = "sqrt"});
  EXPECT_LT(5 * sqrt.arena_bytes(), none.arena_bytes());
  // One more forward pass.
  EXPECT_LT(sqrt.flops_step(), none.flops_step() * 7 / 5);
}

TEST(Checkpoint, AnEvaluationHasNothingToRecompute) {
  const Plan plan = PlanOf(ModelOf("wrn-16-0.5", 4),
                           {.training = false, .recompute = "residual-2*"});
  EXPECT_EQ(plan.flops_recompute(), 0);
}

TEST(Checkpoint, AnUnknownNameIsRefusedWithThoseThereAre) {
  const Model model = ModelOf("wrn-10-1", 1);
  for (const char* name :
       {"", "residual", "residual-", "residual-0", "residual--1", "residual-2x",
        "residual-2**", "every-2*", "none-1", "sqrt-2", "revolve-", "recursive",
        "NONE", "every-99999999999999999999"}) {
    const Result<Plan> plan = MakePlan(model, {.recompute = name});
    ASSERT_FALSE(plan.ok()) << name;
    EXPECT_EQ(plan.status().code(), StatusCode::kUsage) << name;
    EXPECT_NE(plan.status().message().find("residual-M*"), std::string::npos);
  }
}

TEST(Checkpoint, TheStarMayBeWrittenAsALetter) {
  const Plan plan =
      PlanOf(ModelOf("wrn-10-1", 1), {.recompute = "residual-2s"});
  EXPECT_EQ(plan.options().recompute, "residual-2*");
}

}  // namespace
}  // namespace thimble::testing
