// SPDX-License-Identifier: Apache-2.0
//
// In training a batch norm sees more than one value per channel.
#include "planner/batch_statistics.h"

#include <gtest/gtest.h>

#include <string>

#include "closest_plan.h"
#include "thimble/network.h"
#include "thimble/plan.h"

namespace thimble {
namespace {

// Norms of planes, of a plane of one pixel in front of a convolution, which
// fuses it, or of rows.
enum class Last { kPlane, kPixel, kRow };

Model Normed(int64_t batch, Last last) {
  Network net("normed", batch);
  ValueId x = net.Images({.channels = 2, .height = 6, .width = 6});
  x = net.Relu(net.BatchNorm("bn_plane", net.Conv2d("c1", x, {.channels = 4})));
  if (last == Last::kPixel) {
    x = net.MaxPool(x, {.kernel = 6, .stride = 6});
    x = net.Relu(net.BatchNorm("bn_pixel", x));
    x = net.Conv2d("c2", x, {.channels = 4});
  }
  x = net.Flatten(x);
  if (last == Last::kRow) x = net.BatchNorm("bn_row", x);
  Result<Model> model = net.Finish(net.Linear("fc", x, 3));
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

void ExpectRefused(const Status& status, const std::string& layer,
                   const std::string& option) {
  EXPECT_EQ(status.code(), StatusCode::kUsage);
  for (const std::string& part :
       {"batch norm '" + layer + "'", std::string("one value per channel"),
        option}) {
    EXPECT_NE(status.message().find(part), std::string::npos)
        << part << " in: " << status.message();
  }
}

Status PlanStatus(const Model& model, const PlanOptions& options) {
  return MakePlan(model, options).status();
}

TEST(BatchStatistics, OfOneValueAreRefusedWithTheLayerAndTheOption) {
  const std::pair<Last, const char*> cases[] = {{Last::kPixel, "bn_pixel"},
                                                {Last::kRow, "bn_row"}};
  for (const auto& [last, layer] : cases) {
    for (const bool fuse : {true, false}) {
      const Model one = Normed(1, last);
      ExpectRefused(PlanStatus(one, {.fuse = fuse}), layer,
                    "a Model::batch of 2 or more");
      const Model six = Normed(6, last);
      ExpectRefused(PlanStatus(six, {.microbatch = 1, .fuse = fuse}), layer,
                    "a PlanOptions::microbatch of 2 or more");
      ExpectRefused(PlanStatus(six, {.ghost_batch = 1, .fuse = fuse}), layer,
                    "a PlanOptions::ghost_batch of 2 or more");
      ExpectRefused(
          PlanStatus(six, {.microbatch = 3, .ghost_batch = 1, .fuse = fuse}),
          layer, "a PlanOptions::ghost_batch of 2 or more");
      for (const PlanOptions& options :
           {PlanOptions{.fuse = fuse},
            PlanOptions{.microbatch = 2, .fuse = fuse},
            PlanOptions{.microbatch = 3, .ghost_batch = 3, .fuse = fuse},
            PlanOptions{.ghost_batch = 2, .fuse = fuse}}) {
        EXPECT_TRUE(PlanStatus(six, options).ok());
      }
      EXPECT_TRUE(PlanStatus(one, {.training = false, .fuse = fuse}).ok());
    }
  }
}

TEST(BatchStatistics, OfOneImageArePossibleWhereItHasSeveralPixels) {
  EXPECT_TRUE(PlanStatus(Normed(1, Last::kPlane), {}).ok());
  EXPECT_TRUE(PlanStatus(Normed(4, Last::kPlane), {.microbatch = 1}).ok());
  EXPECT_TRUE(PlanStatus(Normed(4, Last::kPlane), {.ghost_batch = 1}).ok());
}

TEST(BatchStatistics, ABudgetNeverChoosesOneValue) {
  for (const Last last : {Last::kPlane, Last::kRow}) {
    const Model model = Normed(12, last);
    PlanOptions options{
        .budget = 0, .allow_microbatch = true, .min_microbatch = 1};
    const Result<Plan> plan = testing::MakeClosestPlan(model, options);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->microbatch(), last == Last::kPlane ? 1 : 2);
  }
}

TEST(BatchStatistics, ALastBatchMayNotLeaveOneImageAlone) {
  const struct {
    PlanOptions options;
    int64_t images;
    bool is_possible;
  } cases[] = {{{}, 1, false},
               {{}, 2, true},
               {{.microbatch = 4}, 5, false},
               {{.microbatch = 4}, 6, true},
               {{.microbatch = 4}, 8, true},
               {{.ghost_batch = 3}, 7, false},
               {{.ghost_batch = 3}, 8, true},
               {{.microbatch = 6, .ghost_batch = 2}, 9, false},
               {{.microbatch = 6, .ghost_batch = 2}, 10, true}};
  for (const bool fuse : {true, false}) {
    for (auto [options, images, is_possible] : cases) {
      options.fuse = fuse;
      for (const Last last : {Last::kPlane, Last::kPixel, Last::kRow}) {
        const Result<Plan> plan = MakePlan(Normed(12, last), options);
        ASSERT_TRUE(plan.ok()) << plan.status().message();
        const Status status =
            planner::CheckLastBatch(*plan, images, "leave out the last");
        if (last == Last::kPlane || is_possible) {
          EXPECT_TRUE(status.ok()) << images << ": " << status.message();
          continue;
        }
        ExpectRefused(status, last == Last::kRow ? "bn_row" : "bn_pixel",
                      "leave out the last, or choose another");
        const std::string held =
            images == 1 ? "1 image" : std::to_string(images) + " images";
        EXPECT_EQ(status.message().find("the last batch of an epoch holds " +
                                        held + ", the last"),
                  0u)
            << status.message();
      }
    }
  }
}

}  // namespace
}  // namespace thimble
