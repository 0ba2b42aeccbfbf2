// SPDX-License-Identifier: Apache-2.0
#include "planner/paper.h"

#include <gtest/gtest.h>

#include <cmath>

#include "thimble/model.h"
#include "thimble/network.h"
#include "thimble/plan.h"

namespace thimble::planner {
namespace {

TEST(PaperAccounting, CountsAChainByHand) {
  // conv – relu – global pool – linear – loss, batch 2, in f32 elements:
  // stored: image 2·1·4·4 = 32, relu bits 2·3·16/32 = 3, linear's input 6, the
  // loss's 4. Peak at the relu: image, bits and the gradient of its output, 96.
  Network net("chain", 2);
  ValueId x = net.Images({.channels = 1, .height = 4, .width = 4});
  x = net.Relu(net.Conv2d("conv", x, {.channels = 3}));
  x = net.Linear("fc", net.GlobalAveragePool(x), 2, /*bias=*/false);
  auto model = net.Finish(x);
  ASSERT_TRUE(model.ok());
  const PaperBytes paper = PaperAccounting(*model, {})->bytes;
  EXPECT_EQ(paper.activation, 4 * (32 + 3 + 96));
  EXPECT_EQ(paper.model, 4 * (27 + 6));
  EXPECT_EQ(paper.optimizer, 2 * 4 * (27 + 6));
  EXPECT_EQ(paper.total, paper.model + paper.optimizer + paper.activation);
}

TEST(PaperAccounting, CountsABatchNormsConstantsInTheModel) {
  Network net("norm", 2);
  ValueId x = net.Images({.channels = 1, .height = 4, .width = 4});
  x = net.BatchNorm("bn", net.Conv2d("conv", x, {.channels = 3}));
  auto model = net.Finish(net.Linear("fc", net.GlobalAveragePool(x), 2, false));
  ASSERT_TRUE(model.ok());
  const PaperBytes paper =
      PaperAccounting(*model, {.optimizer = Sgd({.momentum = 0.0f})})->bytes;
  EXPECT_EQ(paper.model, 4 * (27 + 6 + 6) + 16 * 3 + 8);
  EXPECT_EQ(paper.optimizer, 4 * (27 + 6 + 6));
}

TEST(PaperAccounting, GivesThePapersFigureForWrn28) {
  auto model = BuildModel(
      "wrn-28-2",
      {.batch = 100, .images = {.channels = 3, .height = 32, .width = 32}});
  ASSERT_TRUE(model.ok());
  const PaperBytes paper =
      PaperAccounting(*model, {.optimizer = Sgd({.momentum = 0.9f})})->bytes;
  EXPECT_EQ(paper.activation, int64_t{968'192} * 4 * 100);
  EXPECT_EQ(paper.model + paper.optimizer,
            3 * 4 * 1'456'858 + 4 * 4 * 1'808 + 8 * 25);
  EXPECT_EQ((paper.total + 50'000) / 100'000, 4048);  // 404.8 MB
}

struct Expected {
  const char* strategy;
  int64_t elements;  // per image
  int64_t permille;  // of FLOPs, rounded
};

constexpr Expected kWrn28[] = {
    {"none", 968'192, 1000},        {"no-bn", 486'656, 1001},
    {"residual-1", 257'536, 1157},  {"residual-2", 302'080, 1246},
    {"residual-1*", 249'088, 1157}, {"residual-2*", 167'936, 1312},
    {"residual-3*", 184'320, 1379}, {"residual-4*", 217'088, 1401},
    {"residual-6*", 217'088, 1431}, {"residual-12*", 265'472, 1460}};

Model Wrn28() {
  auto model = BuildModel(
      "wrn-28-2",
      {.batch = 100, .images = {.channels = 3, .height = 32, .width = 32}});
  EXPECT_TRUE(model.ok());
  return *model;
}

TEST(PaperAccounting, GivesThePapersFiguresForEachStrategyOfWrn28) {
  const Model model = Wrn28();
  for (const Expected& expected : kWrn28) {
    SCOPED_TRACE(expected.strategy);
    const auto paper =
        PaperAccounting(model, {}, *ParseStrategy(expected.strategy));
    ASSERT_TRUE(paper.has_value());
    EXPECT_EQ(paper->bytes.activation, expected.elements * 4 * 100);
    EXPECT_EQ(std::lround(1000 * paper->flops_ratio), expected.permille);
  }
}

TEST(PaperAccounting, PlansOfWrn28TakeWhatThePaperCountsOrLess) {
  const Model model = Wrn28();
  for (const Expected& expected : kWrn28) {
    SCOPED_TRACE(expected.strategy);
    const auto plan =
        MakePlan(model, {.threads = 2, .recompute = expected.strategy});
    ASSERT_TRUE(plan.ok());
    EXPECT_TRUE(ValidatePlan(*plan).ok());
    const auto total = static_cast<double>(plan->paper()->bytes.total);
    // Ours counts scratch and input as well.
    EXPECT_LE(static_cast<double>(plan->arena_bytes()), 1.02 * total);
    EXPECT_LE(plan->arena_bytes(), plan->lower_bound() * 101 / 100);
    const auto step = static_cast<double>(plan->flops_step());
    const auto again = static_cast<double>(plan->flops_recompute());
    EXPECT_NEAR(step / (step - again), plan->paper()->flops_ratio, 0.03);
  }
}

TEST(PaperAccounting, CountsEverySecondNodeOfAChainByHand) {
  // Three linear maps of 4 features, batch 2: each stores 8 elements and has as
  // many of gradient. every-1 keeps all inputs and is as none; every-2 keeps
  // the first map's input and the third's. Backward of the last piece holds the
  // logits as well; of the first it holds two inputs and a gradient.
  Network net("chain", 2);
  ValueId x = net.Flatten(net.Images({.channels = 1, .height = 2, .width = 2}));
  for (const char* name : {"a", "b", "c", "d"}) {
    x = net.Linear(name, x, 4, /*bias=*/false);
  }
  auto model = net.Finish(x);
  ASSERT_TRUE(model.ok());
  const auto bytes = [&](const char* strategy) {
    return PaperAccounting(*model, {}, *ParseStrategy(strategy))
        ->bytes.activation;
  };
  EXPECT_EQ(bytes("none"), 4 * 8 * 6);
  EXPECT_EQ(bytes("every-1"), bytes("none"));
  EXPECT_LT(bytes("every-2"), bytes("none"));
}

TEST(PaperAccounting, HasNoFiguresForStrategiesOfOthers) {
  const Model model = Wrn28();
  for (const char* name : {"sqrt", "recursive-1", "revolve"}) {
    EXPECT_FALSE(PaperAccounting(model, {}, *ParseStrategy(name)).has_value());
  }
  auto mlp = BuildModel("mlp", {});
  ASSERT_TRUE(mlp.ok());
  EXPECT_FALSE(PaperAccounting(*mlp, {}, *ParseStrategy("residual-1")));
}

}  // namespace
}  // namespace thimble::planner
