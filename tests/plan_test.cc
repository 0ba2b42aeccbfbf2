// SPDX-License-Identifier: Apache-2.0
//
// Plans of known networks: their text, their budgets, and how close they come
// to the lower bound.
#include "thimble/plan.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "closest_plan.h"
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
arena 23936 lower_bound 23936 peak 'conv.grad_w' at 15
  input                64
  parameter            384
  gradient             384
  optimizer            384
  statistic            384
  activation           256
  activation-gradient  0
  workspace            22080
schedule
     0 microbatch image-conv conv
     1 microbatch batch-norm-train bn
     2 microbatch batch-norm-track bn.track
     3 microbatch relu-with-mask relu1
     4 microbatch global-average-pool global_pool2
     5 microbatch linear fc
     6 microbatch bias fc.add_bias
     7 microbatch softmax-cross-entropy loss
     8 microbatch softmax-cross-entropy-grad loss.grad_logits
     9 microbatch bias-grad fc.add_bias.grad_b
    10 microbatch linear-grad-weight fc.grad_w
    11 microbatch linear-grad-input fc.grad_x
    12 microbatch global-average-pool-grad global_pool2.grad_x
    13 microbatch relu-grad-from-mask relu1.grad_x
    14 microbatch batch-norm-grad bn.grad
    15 microbatch image-conv-grad-weight conv.grad_w
    16 update     sgd-update conv.weight.update
    17 update     sgd-update bn.weight.update
    18 update     sgd-update bn.bias.update
    19 update     sgd-update fc.weight.update
    20 update     sgd-update fc.bias.update
    21 update     commit bn.running_mean.commit
    22 update     commit bn.running_var.commit
    23 evaluate   image-conv eval.conv
    24 evaluate   batch-norm-apply eval.bn
    25 evaluate   relu eval.relu1
    26 evaluate   global-average-pool eval.global_pool2
    27 evaluate   linear eval.fc
    28 evaluate   bias eval.fc.add_bias
    29 evaluate   softmax-cross-entropy eval.loss
buffers
          0+128       [0, 30) parameter conv.weight
        128+64        [0, 30) parameter bn.weight
        192+64        [0, 30) parameter bn.bias
        256+64        [0, 30) statistic bn.running_mean
        320+64        [0, 30) statistic bn.running_var
        384+64        [0, 30) parameter fc.weight
        448+64        [0, 30) parameter fc.bias
        896+64        [0, 16) input images
       2816+64        [0, 9) input labels
        960+256       [0, 16) activation conv
       1216+256       [1, 5) activation bn
      17600+64        [1, 15) statistic bn.1
      17664+64        [1, 15) statistic bn.2
      23424+64        [2, 22) statistic bn.track
      23488+64        [2, 23) statistic bn.track.1
      17728+64        [3, 14) activation relu1.1
      17792+64        [4, 11) activation global_pool2
      17856+64        [5, 12) activation fc
      23552+64        [7, 23) statistic loss
      23616+64        [7, 23) statistic loss.1
      23680+64        [9, 21) gradient fc.add_bias.grad_b
      23744+64        [10, 20) gradient fc.grad_w
       1472+64        [11, 13) activation-gradient fc.grad_x
       1216+256       [12, 15) activation-gradient global_pool2.grad_x
      23808+64        [14, 18) gradient bn.grad
      23872+64        [14, 19) gradient bn.grad.1
      23296+128       [15, 17) gradient conv.grad_w
        512+128       [0, 30) optimizer conv.weight.velocity
        640+64        [0, 30) optimizer bn.weight.velocity
        704+64        [0, 30) optimizer bn.bias.velocity
        768+64        [0, 30) optimizer fc.weight.velocity
        832+64        [0, 30) optimizer fc.bias.velocity
       2816+64        [23, 24) input eval.images
        896+64        [23, 30) input eval.labels
       2560+256       [23, 27) activation eval.conv
       1088+64        [26, 28) activation eval.global_pool2
       1152+64        [27, 30) activation eval.fc
        960+64        [29, 30) statistic eval.loss
       1024+64        [29, 30) statistic eval.loss.1
       1216+1600      [0, 1) workspace conv.scratch
       1216+128       [5, 6) workspace fc.scratch
       1216+64        [7, 8) workspace loss.scratch
       1216+16384     [10, 11) workspace fc.grad_w.scratch
       1216+192       [11, 12) workspace fc.grad_x.scratch
       1216+22080     [15, 16) workspace conv.grad_w.scratch
        960+1600      [23, 24) workspace eval.conv.scratch
        960+128       [27, 28) workspace eval.fc.scratch
       1088+64        [29, 30) workspace eval.loss.scratch
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
  options.optimizer = Sgd({.momentum = 0});
  const Result<Plan> plan = MakePlan(Tiny(), options);
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(ValidatePlan(*plan).ok());
  EXPECT_EQ(plan->peak_bytes(Role::kOptimizerState), 0u);
  for (const ParameterState& p : plan->parameters()) {
    EXPECT_TRUE(p.state.empty());
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
  options.budget = plan->arena_bytes() - 1;
  EXPECT_FALSE(MakePlan(model, options).ok());
}

TEST(Plan, RefusesImpossibleOptions) {
  const Model model = Tiny();
  const auto refused = [&model](const PlanOptions& options) {
    const Result<Plan> plan = MakePlan(model, options);
    return !plan.ok() && plan.status().code() == StatusCode::kUsage;
  };
  EXPECT_TRUE(refused({.threads = 0}));
  EXPECT_TRUE(refused({.threads = 100000}));
  EXPECT_TRUE(refused({.optimizer = Sgd({.momentum = 1.0f})}));
  EXPECT_TRUE(refused({.optimizer = Sgd({.momentum = -0.1f})}));
  EXPECT_TRUE(refused({.optimizer = Sgd({.weight_decay = -1.0f})}));
  EXPECT_TRUE(refused({.optimizer = Sgd({.momentum = 0, .nesterov = true})}));
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

// Fused, the sum is written in place of the residual; here that is also what
// the convolution reads.
TEST(Plan, NoConvolutionIsWrittenOverItsOwnInput) {
  Network net("own_input", 2);
  ValueId x = net.Images({.channels = 1, .height = 8, .width = 8});
  x = net.Conv2d("stem", x, {.channels = 2});
  for (const char* name : {"a", "b"}) {
    const std::string block = name;
    const ValueId y = net.Relu(net.BatchNorm(block + ".bn", x));
    x = net.Add(net.Conv2d(block + ".conv", y, {.channels = 2}), x);
  }
  const Result<Model> model =
      net.Finish(net.Linear("fc", net.GlobalAveragePool(x), 3));
  ASSERT_TRUE(model.ok()) << model.status().message();
  for (const char* strategy : {"none", "every-1", "sqrt", "auto"}) {
    SCOPED_TRACE(strategy);
    const Result<Plan> plan =
        MakeClosestPlan(*model, {.recompute = strategy, .budget = 0});
    ASSERT_TRUE(plan.ok());
    EXPECT_TRUE(ValidatePlan(*plan).ok()) << ValidatePlan(*plan).message();
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

// ---- The gap between arena and lower bound

struct Swept {
  const char* model;
  struct Size {
    int64_t batch, microbatch;
  };
  std::vector<Size> sizes;
};

const std::vector<Swept> kQuickSweep = {
    {"cnn", {{13, 13}}}, {"wrn-16-1", {{8, 2}}}, {"lstm-1-128-28", {{10, 5}}}};

const std::vector<Swept> kWholeSweep = {
    {"mlp", {{100, 100}, {100, 10}, {7, 7}}},
    {"cnn", {{100, 100}, {100, 10}, {13, 13}, {64, 8}}},
    {"wrn-28-2", {{100, 100}, {100, 10}, {100, 4}, {32, 32}}},
    {"wrn-16-1", {{100, 100}, {100, 10}, {8, 2}}},
    {"resnet-110", {{100, 100}, {128, 16}}},
    {"resnet-164", {{100, 100}, {100, 10}}},
    {"resnet-imagenet-50", {{32, 32}, {32, 4}}},
    {"lstm-1-128-28", {{100, 100}, {100, 10}}},
    {"lstm-2-64-100", {{100, 100}, {100, 20}}},
    {"resnet-1001", {{10, 10}}},
    {"lstm-1-128-784", {{32, 32}}}};

void ExpectSmallGap(const Model& model, const PlanOptions& options) {
  const Result<Plan> plan = MakePlan(model, options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_LE(static_cast<double>(plan->arena_bytes()),
            1.01 * static_cast<double>(plan->lower_bound()))
      << plan->model() << " batch " << plan->batch() << " microbatch "
      << plan->microbatch() << " threads " << options.threads << " "
      << options.recompute << " budget " << options.budget.value_or(0);
}

void SweepStrategies(const Model& model, PlanOptions options) {
  for (const char* strategy :
       {"none", "no-bn", "every-1", "every-2", "every-3", "residual-1",
        "residual-2", "residual-3", "residual-1*", "residual-2*", "residual-3*",
        "sqrt", "recursive-1", "recursive-2", "recursive-3", "revolve"}) {
    options.recompute = strategy;
    ExpectSmallGap(model, options);
  }
  options.recompute = "none";
  const uint64_t most = MakePlan(model, options)->arena_bytes();
  options.recompute = "auto";
  options.budget = 0;
  const uint64_t least = MakeClosestPlan(model, options)->arena_bytes();
  constexpr uint64_t kBudgets = 5;
  for (uint64_t k = 0; k < kBudgets; ++k) {
    options.budget = least + (most - least) * k / (kBudgets - 1);
    ExpectSmallGap(model, options);
  }
}

// THIMBLE_WHOLE_SWEEP is set by scripts/test --long.
TEST(Plan, IsWithinOnePercentOfTheLowerBoundForEveryStrategy) {
  const bool whole = std::getenv("THIMBLE_WHOLE_SWEEP") != nullptr;
  for (const Swept& swept : whole ? kWholeSweep : kQuickSweep) {
    const TrainingPreset preset = PresetOf(swept.model);
    for (const auto& [batch, microbatch] : swept.sizes) {
      const Result<Model> model = BuildModel(
          swept.model,
          {.batch = batch, .images = preset.images, .classes = preset.classes});
      ASSERT_TRUE(model.ok()) << model.status().message();
      for (const int threads : {1, 2}) {
        if (!whole && threads == 1) continue;
        SweepStrategies(*model, {.threads = threads, .microbatch = microbatch});
      }
    }
  }
}

}  // namespace
}  // namespace thimble::testing
