// SPDX-License-Identifier: Apache-2.0
//
// The training loop with steps of several microbatches: what it reports, saves
// and goes on from.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/test_folder.h"
#include "small_synthetic.h"
#include "thimble/model.h"
#include "thimble/plan.h"
#include "thimble/trainer.h"

namespace thimble::testing {
namespace {

// Keeps what it is told, and asks for a stop after a step.
class Listener final : public TrainObserver {
 public:
  explicit Listener(int64_t stop_after = 0) : stop_after_(stop_after) {}

  void OnStep(const StepEvent& event) override {
    losses.push_back(event.loss);
    if (event.step == stop_after_) stop = true;
  }
  void OnEpoch(const EpochEvent& event) override { epochs.push_back(event); }

  std::vector<double> losses;
  std::vector<EpochEvent> epochs;
  std::atomic<bool> stop{false};

 private:
  int64_t stop_after_;
};

class MicrobatchTrainTest : public ::testing::Test {
 protected:
  void SetUp() override {
    data_ = SmallSynthetic::Open();
    ASSERT_NE(data_, nullptr);
  }

  Result<TrainSummary> Run(const char* name, const PlanOptions& plan_options,
                           TrainOptions options, Listener& listener,
                           int64_t batch = 20) {
    const ModelOptions model_options = {
        .batch = batch, .images = {.channels = 1, .height = 14, .width = 14}};
    const Result<Model> model = BuildModel(name, model_options);
    EXPECT_TRUE(model.ok()) << model.status().message();
    const Result<Plan> plan = MakePlan(*model, plan_options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    options.stop = &listener.stop;
    return Train(*plan, *data_, options, &listener, {.keep_last = true});
  }

  std::unique_ptr<Dataset> data_;
};

// At a rate that moves no weight, each step's loss is that of its images,
// whatever their division: the last batch has 16 images, the last microbatch of
// it 1. A loss is rounded once for each of its parts, and once as a whole.
TEST_F(MicrobatchTrainTest, ReportsTheMeanOverTheImagesOfAStep) {
  TrainOptions options;
  options.epochs = 1;
  options.learning_rate = 1e-30;
  Listener whole;
  ASSERT_TRUE(Run("mlp", {}, options, whole).ok());
  ASSERT_EQ(whole.losses.size(), 5u);
  // Over all images it is that of one batch that holds them all.
  Listener one;
  ASSERT_TRUE(Run("mlp", {.microbatch = 8}, options, one, 96).ok());
  ASSERT_EQ(one.losses.size(), 1u);
  double mean = 0;
  for (size_t step = 0; step < 5; ++step) {
    mean += whole.losses[step] * (step < 4 ? 20 : 16) / 96;
  }
  EXPECT_NEAR(mean, one.losses[0],
              20 * std::numeric_limits<float>::epsilon() * mean);
  for (const int64_t microbatch : {5, 10, 1}) {
    SCOPED_TRACE(microbatch);
    Listener parts;
    ASSERT_TRUE(Run("mlp", {.microbatch = microbatch}, options, parts).ok());
    ASSERT_EQ(parts.losses.size(), whole.losses.size());
    for (size_t step = 0; step < whole.losses.size(); ++step) {
      EXPECT_NEAR(
          parts.losses[step], whole.losses[step],
          20 * std::numeric_limits<float>::epsilon() * whole.losses[step]);
    }
    ASSERT_EQ(parts.epochs[0].metrics.size(), 1u);
    const EpochMetric& metric = parts.epochs[0].metrics[0];
    EXPECT_EQ(metric.name, "accuracy");
    EXPECT_TRUE(metric.is_share);
    EXPECT_EQ(metric.train, whole.epochs[0].metrics[0].train);
    EXPECT_EQ(metric.test, whole.epochs[0].metrics[0].test);
  }
}

TEST_F(MicrobatchTrainTest, ResumedAfterAnyStepEndsInTheSameBits) {
  TrainOptions options;
  options.steps = 7;  // an epoch and two steps
  options.learning_rate = 0.05;
  for (const PlanOptions& plan :
       {PlanOptions{.microbatch = 5},
        PlanOptions{.microbatch = 10, .ghost_batch = 5}}) {
    Listener unstopped;
    const Result<TrainSummary> whole = Run("cnn", plan, options, unstopped);
    ASSERT_TRUE(whole.ok()) << whole.status().message();
    for (const int64_t stop : {1, 4, 5, 6}) {
      SCOPED_TRACE(stop);
      TestFolder folder;
      options.out_dir = folder.File("run");
      options.resume = true;
      Listener first(stop);
      const Result<TrainSummary> stopped = Run("cnn", plan, options, first);
      ASSERT_TRUE(stopped.ok()) << stopped.status().message();
      ASSERT_TRUE(stopped->stopped);
      EXPECT_NE(stopped->weights_sha256, whole->weights_sha256);
      Listener rest;
      const Result<TrainSummary> resumed = Run("cnn", plan, options, rest);
      ASSERT_TRUE(resumed.ok()) << resumed.status().message();
      EXPECT_EQ(resumed->resumed_step, stop);
      EXPECT_EQ(resumed->weights_sha256, whole->weights_sha256);
      EXPECT_EQ(resumed->final_train_loss, whole->final_train_loss);
      // Stopped right before the test of an epoch, only that is left of it.
      EXPECT_EQ(std::isnan(rest.epochs[0].per_second), stop == 5);
      options.out_dir.clear();
      options.resume = false;
    }
  }
}

TEST_F(MicrobatchTrainTest, AnotherDivisionCannotGoOn) {
  TestFolder folder;
  TrainOptions options;
  options.steps = 4;
  options.out_dir = folder.File("run");
  options.resume = true;
  Listener first(/*stop_after=*/2);
  ASSERT_TRUE(Run("cnn", {.microbatch = 5}, options, first).ok());
  const auto refused = [&](const PlanOptions& plan) {
    Listener listener;
    const Result<TrainSummary> summary = Run("cnn", plan, options, listener);
    EXPECT_FALSE(summary.ok());
    return summary.ok() ? "" : summary.status().message();
  };
  EXPECT_NE(refused({.microbatch = 10}).find("microbatch = 5, now it is 10"),
            std::string::npos);
  EXPECT_NE(refused({.microbatch = 5, .ghost_batch = 1})
                .find("ghost batch = 0, now it is 1"),
            std::string::npos);
}

// A rate that makes the weights overflow: the step is refused whole, and what
// was saved before stays.
TEST_F(MicrobatchTrainTest, ADivergedStepIsNotApplied) {
  TrainOptions options;
  options.steps = 10;
  options.learning_rate = 1e30;
  Listener listener;
  const Result<TrainSummary> summary =
      Run("cnn", {.microbatch = 5}, options, listener);
  ASSERT_FALSE(summary.ok());
  EXPECT_NE(
      summary.status().message().find("training has diverged: after step"),
      std::string::npos)
      << summary.status().message();
  for (const double loss : listener.losses) EXPECT_TRUE(std::isfinite(loss));
}

}  // namespace
}  // namespace thimble::testing
