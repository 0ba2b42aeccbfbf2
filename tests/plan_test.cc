// SPDX-License-Identifier: Apache-2.0
//
// Plans of known networks: their text, their budgets, and how close they come
// to the lower bound.
#include "thimble/plan.h"

#include <gtest/gtest.h>

#include <string>

#include "thimble/model.h"
#include "thimble/network.h"

namespace thimble::testing {
namespace {

Model Tiny() {
  Network net("tiny", 2);
  ValueId x = net.Images({.channels = 1, .height = 4, .width = 4});
  x = net.Relu(net.BatchNorm("bn", net.Conv2d("conv", x, {.channels = 2})));
  const Result<Model> model =
      net.Finish(net.Linear("fc", net.GlobalAveragePool(x), 3));
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *model;
}

TEST(Plan, OfATinyNetworkIsThisText) {
  const Result<Plan> plan = MakePlan(Tiny(), {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->Explain(), R"(plan tiny batch 2 threads 1
arena 18368 lower_bound 18368 peak 'fc.grad_w' at 11
  input                0
  parameter            384
  gradient             128
  optimizer            384
  statistic            512
  activation           576
  activation-gradient  0
  workspace            16384
schedule
     0 microbatch normalize normalize
     1 microbatch conv2d conv
     2 microbatch batch-norm-train bn
     3 microbatch batch-norm-track bn.track
     4 microbatch relu-with-mask relu1
     5 microbatch global-average-pool global_pool2
     6 microbatch linear fc
     7 microbatch bias fc.add_bias
     8 microbatch softmax-cross-entropy loss
     9 microbatch softmax-cross-entropy-grad loss.grad_logits
    10 microbatch bias-grad fc.add_bias.grad_b
    11 microbatch linear-grad-weight fc.grad_w
    12 microbatch linear-grad-input fc.grad_x
    13 microbatch global-average-pool-grad global_pool2.grad_x
    14 microbatch relu-grad-from-mask relu1.grad_x
    15 microbatch batch-norm-grad bn.grad
    16 microbatch conv2d-grad-weight conv.grad_w
    17 update     sgd-update conv.weight.update
    18 update     sgd-update bn.weight.update
    19 update     sgd-update bn.bias.update
    20 update     sgd-update fc.weight.update
    21 update     sgd-update fc.bias.update
    22 update     commit bn.running_mean.commit
    23 update     commit bn.running_var.commit
    24 evaluate   normalize eval.normalize
    25 evaluate   conv2d eval.conv
    26 evaluate   batch-norm-apply eval.bn
    27 evaluate   relu eval.relu1
    28 evaluate   global-average-pool eval.global_pool2
    29 evaluate   linear eval.fc
    30 evaluate   bias eval.fc.add_bias
    31 evaluate   softmax-cross-entropy eval.loss
buffers
      16640+128       [0, 32) parameter conv.weight
      17024+64        [0, 32) parameter bn.weight
      17088+64        [0, 32) parameter bn.bias
      17152+64        [0, 32) statistic bn.running_mean
      17216+64        [0, 32) statistic bn.running_var
      17280+64        [0, 32) parameter fc.weight
      17344+64        [0, 32) parameter fc.bias
          0+64        [0, 1) input images
       1344+64        [0, 10) input labels
      16768+128       [0, 17) activation normalize
      16384+256       [1, 16) activation conv
          0+256       [2, 6) activation bn
      17408+64        [2, 16) statistic bn.1
      17472+64        [2, 16) statistic bn.2
      17536+64        [3, 23) statistic bn.track
      17600+64        [3, 24) statistic bn.track.1
      17664+64        [4, 15) activation relu1.1
      17728+64        [5, 12) activation global_pool2
      17792+64        [6, 13) activation fc
      17856+64        [8, 24) statistic loss
      17920+64        [8, 24) statistic loss.1
      17984+64        [10, 22) gradient fc.add_bias.grad_b
      18048+64        [11, 21) gradient fc.grad_w
        192+64        [12, 14) activation-gradient fc.grad_x
       3840+256       [13, 17) activation-gradient global_pool2.grad_x
       4224+64        [15, 19) gradient bn.grad
       4288+64        [15, 20) gradient bn.grad.1
       4096+128       [16, 18) gradient conv.grad_w
      16896+128       [0, 32) optimizer conv.weight.velocity
      18112+64        [0, 32) optimizer bn.weight.velocity
      18176+64        [0, 32) optimizer bn.bias.velocity
      18240+64        [0, 32) optimizer fc.weight.velocity
      18304+64        [0, 32) optimizer fc.bias.velocity
          0+64        [24, 25) input eval.images
       1728+64        [24, 32) input eval.labels
       1600+128       [24, 26) activation eval.normalize
       1344+256       [25, 29) activation eval.conv
        128+64        [28, 30) activation eval.global_pool2
        192+64        [29, 32) activation eval.fc
          0+64        [31, 32) statistic eval.loss
         64+64        [31, 32) statistic eval.loss.1
          0+1344      [1, 2) workspace conv.scratch
          0+128       [6, 7) workspace fc.scratch
          0+64        [8, 9) workspace loss.scratch
          0+16384     [11, 12) workspace fc.grad_w.scratch
          0+192       [12, 13) workspace fc.grad_x.scratch
          0+3840      [16, 17) workspace conv.grad_w.scratch
          0+1344      [25, 26) workspace eval.conv.scratch
          0+128       [29, 30) workspace eval.fc.scratch
        128+64        [31, 32) workspace eval.loss.scratch
)");
}

TEST(Plan, ForEvaluationHasOneForwardPassOnly) {
  PlanOptions options;
  options.training = false;
  const Result<Plan> plan = MakePlan(Tiny(), options);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(ValidatePlan(*plan).ok());
  for (const ScheduledOp& op : plan->schedule()) {
    EXPECT_EQ(op.phase, Phase::kEvaluate);
  }
  EXPECT_EQ(plan->peak_bytes(Role::kGradient), 0u);
  EXPECT_EQ(plan->peak_bytes(Role::kOptimizerState), 0u);
}

TEST(Plan, WithoutMomentumStoresNoVelocity) {
  PlanOptions options;
  options.optimizer.momentum = 0;
  const Result<Plan> plan = MakePlan(Tiny(), options);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(ValidatePlan(*plan).ok());
  EXPECT_EQ(plan->peak_bytes(Role::kOptimizerState), 0u);
  for (const ParameterState& p : plan->parameters()) {
    EXPECT_FALSE(p.velocity.valid());
  }
}

TEST(Plan, FitsABudgetOfExactlyItsArena) {
  PlanOptions options;
  options.threads = 2;
  const Model model = Tiny();
  const Result<Plan> plan = MakePlan(model, options);
  ASSERT_TRUE(plan.ok());
  options.budget = plan->arena_bytes();
  EXPECT_TRUE(MakePlan(model, options).ok());
  EXPECT_TRUE(CheckBudget(model, *plan, plan->arena_bytes()).ok());
  options.budget = plan->arena_bytes() - 1;
  EXPECT_FALSE(MakePlan(model, options).ok());
  EXPECT_FALSE(CheckBudget(model, *plan, plan->arena_bytes() - 1).ok());
}

TEST(Plan, OverBudgetNamesThePeakAndTheBudgetsThatDo) {
  const Model model = Tiny();
  PlanOptions options;
  const size_t one_thread = MakePlan(model, options)->arena_bytes();
  options.threads = 2;
  const Plan plan = *MakePlan(model, options);
  options.budget = 1000;
  const Result<Plan> refused = MakePlan(model, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kFailed);
  const std::string& message = refused.status().message();
  for (const std::string& text :
       {"'" + plan.peak_op().name + "'", std::string("tiny"),
        "smallest budget that works is " + std::to_string(plan.arena_bytes()),
        "with --threads 1 it is " + std::to_string(one_thread)}) {
    EXPECT_NE(message.find(text), std::string::npos) << message;
  }
  options.budget = plan.arena_bytes();
  EXPECT_TRUE(MakePlan(model, options).ok()) << "the budget that it named";
  options.threads = 1;
  options.budget = one_thread;
  EXPECT_TRUE(MakePlan(model, options).ok()) << "the budget that it named";
}

TEST(Plan, RefusesImpossibleOptions) {
  const Model model = Tiny();
  const auto refused = [&model](const PlanOptions& options) {
    const Result<Plan> plan = MakePlan(model, options);
    return !plan.ok() && plan.status().code() == StatusCode::kUsage;
  };
  EXPECT_TRUE(refused({.threads = 0}));
  EXPECT_TRUE(refused({.threads = 100000}));
  EXPECT_TRUE(refused({.optimizer = {.momentum = 1.0f}}));
  EXPECT_TRUE(refused({.optimizer = {.momentum = -0.1f}}));
  EXPECT_TRUE(refused({.optimizer = {.weight_decay = -1.0f}}));
  EXPECT_TRUE(refused({.optimizer = {.momentum = 0, .nesterov = true}}));
}

TEST(Plan, OfTheModelsIsWithinTwoPercentOfTheLowerBound) {
  for (const char* name : {"mlp", "cnn"}) {
    for (const int64_t batch : {1, 32, 100, 256}) {
      const Result<Model> model = BuildModel(name, {.batch = batch});
      ASSERT_TRUE(model.ok());
      for (const int threads : {1, 2, 4}) {
        PlanOptions options;
        options.threads = threads;
        const Result<Plan> plan = MakePlan(*model, options);
        ASSERT_TRUE(plan.ok());
        const Status status = ValidatePlan(*plan);
        EXPECT_TRUE(status.ok()) << status.message();
        // In integers: arena <= 1.02 bound.
        EXPECT_LE(plan->arena_bytes() * 50, plan->lower_bound() * 51)
            << name << " batch " << batch << " threads " << threads;
      }
    }
  }
}

TEST(Plan, InPlaceNeedsLessThanNothingInPlace) {
  const Result<Model> model = BuildModel("cnn", {.batch = 32});
  ASSERT_TRUE(model.ok());
  PlanOptions options;
  const size_t shared = MakePlan(*model, options)->arena_bytes();
  options.inplace = false;
  const size_t apart = MakePlan(*model, options)->arena_bytes();
  EXPECT_LT(shared, apart);
}

}  // namespace
}  // namespace thimble::testing
