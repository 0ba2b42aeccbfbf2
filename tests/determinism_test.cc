// SPDX-License-Identifier: Apache-2.0
//
// Training the same model on the same data gives the same weights, bit for bit,
// whatever the number of threads, with expired buffers poisoned, and again; on
// each SIMD target, also where a step has several microbatches or groups.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "few_records.h"
#include "kernels/testing.h"
#include "small_synthetic.h"
#include "thimble/data.h"
#include "thimble/model.h"
#include "thimble/plan.h"
#include "thimble/trainer.h"

namespace thimble::testing {
namespace {

// Sanitizers look for other things than bits, and take their time.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define THIMBLE_SANITIZED 1
constexpr int64_t kSteps = 4;
constexpr int64_t kStepsInParts = 2;
#else
#define THIMBLE_SANITIZED 0
constexpr int64_t kSteps = 50;
constexpr int64_t kStepsInParts = 12;
#endif

struct Case {
  const char* name;
  const char* model;
  int64_t steps;
  int64_t batch;
  int64_t microbatch;
  int64_t ghost_batch;
  double dropout = 0;
};

// The last batch of an epoch is smaller; with batches of 20 it has 16 images,
// whose last microbatch or group has one.
constexpr Case kCases[] = {
    {"mlp", "mlp", kSteps, 13, 0, 0},
    {"cnn", "cnn", kSteps, 13, 0, 0},
    {"lstm", "lstm-2-16-14", kStepsInParts, 13, 0, 0},
    {"mlp_in_microbatches", "mlp", kStepsInParts, 20, 5, 0},
    {"cnn_in_microbatches", "cnn", kStepsInParts, 20, 5, 0},
    {"lstm_in_microbatches", "lstm-2-16-14", kStepsInParts, 20, 5, 0},
    {"mlp_with_dropout", "mlp", kStepsInParts, 20, 10, 0, 0.5},
    {"cnn_in_groups", "cnn", kStepsInParts, 20, 0, 5},
    {"cnn_in_microbatches_and_groups", "cnn", kStepsInParts, 20, 10, 5},
};

class DeterminismTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    data_ = SmallSynthetic::Open();
    ASSERT_NE(data_, nullptr);
  }

  // The hash of the weights after the case's steps.
  std::string WeightsAfterTraining(int threads, bool poison, uint64_t seed) {
    ModelOptions model_options;
    model_options.batch = GetParam().batch;
    model_options.images = {.channels = 1, .height = 14, .width = 14};
    model_options.dropout = GetParam().dropout;
    const Result<Model> model = BuildModel(GetParam().model, model_options);
    EXPECT_TRUE(model.ok()) << model.status().message();
    PlanOptions plan_options;
    plan_options.threads = threads;
    plan_options.microbatch = GetParam().microbatch;
    plan_options.ghost_batch = GetParam().ghost_batch;
    plan_options.optimizer = Sgd({.weight_decay = 1e-4f, .nesterov = true});
    const Result<Plan> plan = MakePlan(*model, plan_options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    TrainOptions options;
    options.steps = GetParam().steps;
    options.seed = seed;
    options.learning_rate = 0.05;
    options.poison = poison;
    const Result<TrainSummary> summary =
        Train(*plan, *data_, options, nullptr, {.keep_last = true});
    EXPECT_TRUE(summary.ok()) << summary.status().message();
    EXPECT_EQ(summary->steps, GetParam().steps);
    EXPECT_EQ(summary->weights_sha256.size(), 64u);
    return summary->weights_sha256;
  }

  std::unique_ptr<Dataset> data_;
};

TEST_P(DeterminismTest, OneSetOfWeightsForThreadsAndPoison) {
  const auto check = [this] {
    const std::string weights = WeightsAfterTraining(1, false, 1);
    EXPECT_EQ(WeightsAfterTraining(2, false, 1), weights) << "2 threads";
    EXPECT_EQ(WeightsAfterTraining(3, false, 1), weights) << "3 threads";
    EXPECT_EQ(WeightsAfterTraining(1, true, 1), weights) << "poison";
  };
#if THIMBLE_SANITIZED
  check();  // threads share their work in the same way on every target
#else
  kernels::testing::ForEachTarget(check);
#endif
}

TEST_P(DeterminismTest, AnotherSeedGivesOtherWeights) {
  EXPECT_NE(WeightsAfterTraining(1, false, 1),
            WeightsAfterTraining(1, false, 2));
}

// What is fused, and Winograd's convolutions, on the target that users have.
TEST(WrnDeterminism, OneSetOfWeightsForThreads) {
#if THIMBLE_SANITIZED
  const char* name = "wrn-10-1";
  const int64_t steps = 4;
#else
  const char* name = "wrn-28-2";
  const int64_t steps = 20;
#endif
  auto full = OpenDataset("synthetic-cifar", {});
  ASSERT_TRUE(full.ok()) << full.status().message();
  const FewRecords data(*std::move(full), {.train = 64, .test = 10});
  const Result<Model> model =
      BuildModel(name, {.batch = 5, .images = PresetOf(name).images});
  ASSERT_TRUE(model.ok()) << model.status().message();
  std::string weights;
  for (int threads : {1, 2, 3}) {
    const Result<Plan> plan = MakePlan(*model, {.threads = threads});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    TrainOptions options;
    options.steps = steps;
    options.learning_rate = 0.05;
    const Result<TrainSummary> summary =
        Train(*plan, data, options, nullptr, {.augment = Augment::kCropFlip});
    ASSERT_TRUE(summary.ok()) << summary.status().message();
    if (threads == 1) weights = summary->weights_sha256;
    EXPECT_EQ(summary->weights_sha256, weights) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, DeterminismTest, ::testing::ValuesIn(kCases),
                         [](const auto& test) {
                           return std::string(test.param.name);
                         });

}  // namespace
}  // namespace thimble::testing
