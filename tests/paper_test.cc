// SPDX-License-Identifier: Apache-2.0
#include "planner/paper.h"

#include <gtest/gtest.h>

#include "thimble/model.h"
#include "thimble/network.h"

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
  const PaperBytes paper = PaperAccounting(*model, {});
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
  const PaperBytes paper = PaperAccounting(*model, {.momentum = 0.0f});
  EXPECT_EQ(paper.model, 4 * (27 + 6 + 6) + 16 * 3 + 8);
  EXPECT_EQ(paper.optimizer, 4 * (27 + 6 + 6));
}

TEST(PaperAccounting, GivesThePapersFigureForWrn28) {
  auto model = BuildModel(
      "wrn-28-2",
      {.batch = 100, .images = {.channels = 3, .height = 32, .width = 32}});
  ASSERT_TRUE(model.ok());
  const PaperBytes paper = PaperAccounting(*model, {.momentum = 0.9f});
  EXPECT_EQ(paper.activation, int64_t{968'192} * 4 * 100);
  EXPECT_EQ(paper.model + paper.optimizer,
            3 * 4 * 1'456'858 + 4 * 4 * 1'808 + 8 * 25);
  EXPECT_EQ((paper.total + 50'000) / 100'000, 4048);  // 404.8 MB
}

}  // namespace
}  // namespace thimble::planner
