// SPDX-License-Identifier: Apache-2.0
//
// A run with sparse weights that is stopped before, at or behind a rewiring and
// gone on with ends in the same bits; with other settings it cannot go on.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/test_folder.h"
#include "small_synthetic.h"
#include "thimble/network.h"
#include "thimble/plan.h"
#include "thimble/trainer.h"

namespace thimble::testing {
namespace {

// Asks for a stop after a step.
class Stopper final : public TrainObserver {
 public:
  explicit Stopper(int64_t after = 0) : after_(after) {}
  void OnStep(const StepEvent& event) override {
    if (event.step == after_) stop = true;
  }
  void OnEpoch(const EpochEvent&) override {}

  std::atomic<bool> stop{false};

 private:
  int64_t after_;
};

Model SmallModel() {
  Network net("small", 20);
  ValueId x = net.Images({.channels = 1, .height = 14, .width = 14});
  x = net.Relu(net.Conv2d("stem", x, {.channels = 8, .stride = 2}));
  x = net.Relu(net.BatchNorm("norm", net.Conv2d("a", x, {.channels = 16})));
  x = net.Relu(net.Conv2d("b", x, {.channels = 16, .stride = 2}));
  x = net.Linear("hidden", net.Flatten(x), 32);
  auto model = net.Finish(net.Linear("head", x, 10));
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

class SparseResume : public ::testing::Test {
 protected:
  void SetUp() override {
    data_ = SmallSynthetic::Open();
    ASSERT_NE(data_, nullptr);
  }

  Result<TrainSummary> Run(const PlanOptions& plan_options,
                           TrainOptions options, int64_t stop_after = 0) {
    const auto plan = MakePlan(SmallModel(), plan_options);
    if (!plan.ok()) return plan.status();
    Stopper stopper(stop_after);
    options.stop = &stopper.stop;
    return Train(*plan, *data_, options, &stopper);
  }

  std::unique_ptr<Dataset> data_;
};

struct Setting {
  const char* name;
  PlanOptions plan;
  RewiringOptions rewiring = {.every = 3};
};

Precision F16WithoutGradients() {
  Precision precision = Precision::All(DType::kF16);
  precision.keeps_gradients = false;
  return precision;
}

// Rewirings are behind the steps 4, 7 and 10, an epoch ends after step 5.
TEST_F(SparseResume, AfterAnyStepEndsInTheSameBits) {
  const Setting settings[] = {
      {"packed", {.sparse = {.nonzero = 0.3, .index = IndexCodec::kPacked}}},
      {"bitmap",
       {.sparse = {.nonzero = 0.1, .index = IndexCodec::kBitmap},
        .microbatch = 10},
       {.every = 3, .reset = StateReset::kNewBlocks}},
      {"set in blocks",
       {.optimizer = Adam({.state = U8InBlocks()}),
        .sparse = {.nonzero = 0.3, .block = {2, 2}}},
       {.method = RewireMethod::kSet, .every = 3}},
      {"f16",
       {.optimizer = Sgd({.state = U8InBlocks()}),
        .precision = F16WithoutGradients(),
        .sparse = {.nonzero = 0.3}}},
      {"f16 adam",
       {.optimizer = Adam(),
        .precision = Precision::All(DType::kF16),
        .sparse = {.nonzero = 0.3}},
       {.every = 3, .reset = StateReset::kNewBlocks}}};
  for (const Setting& setting : settings) {
    SCOPED_TRACE(setting.name);
    const TestFolder folder;
    TrainOptions options;
    options.steps = 12;
    options.learning_rate = 0.01;
    options.rewiring = setting.rewiring;
    options.out_dir = folder.File("whole");
    const auto whole = Run(setting.plan, options);
    ASSERT_TRUE(whole.ok()) << whole.status().message();
    ASSERT_EQ(whole->rewirings, 3);
    options.resume = true;
    for (const int64_t stop : {3, 4, 5}) {
      SCOPED_TRACE(stop);
      options.out_dir = folder.File(std::to_string(stop));
      const auto stopped = Run(setting.plan, options, stop);
      ASSERT_TRUE(stopped.ok()) << stopped.status().message();
      ASSERT_TRUE(stopped->stopped);
      ASSERT_EQ(stopped->rewirings, (stop - 1) / 3);
      const auto resumed = Run(setting.plan, options);
      ASSERT_TRUE(resumed.ok()) << resumed.status().message();
      EXPECT_EQ(resumed->resumed_step, stop);
      EXPECT_EQ(resumed->rewirings, 3);
      EXPECT_EQ(resumed->weights_sha256, whole->weights_sha256);
      EXPECT_EQ(resumed->final_train_loss, whole->final_train_loss);
      // With the optimizer's state, and what the next rewiring would do.
      const std::string name = "/checkpoint.safetensors";
      EXPECT_TRUE(ReadTestFile(options.out_dir + name) ==
                  ReadTestFile(folder.File("whole") + name));
    }
  }
}

TEST_F(SparseResume, WithOtherSettingsIsRefused) {
  const TestFolder folder;
  const PlanOptions plan = {
      .sparse = {.nonzero = 0.3, .index = IndexCodec::kPacked}};
  TrainOptions options;
  options.steps = 8;
  options.rewiring = {.every = 3};
  options.out_dir = folder.File("run");
  options.resume = true;
  ASSERT_TRUE(Run(plan, options, 4).ok());
  const auto refused = [&](const SparseWeights& sparse,
                           const RewiringOptions& rewiring,
                           const std::string& says) {
    TrainOptions other = options;
    other.rewiring = rewiring;
    const auto summary = Run({.sparse = sparse}, other);
    ASSERT_FALSE(summary.ok()) << says;
    EXPECT_NE(summary.status().message().find(says), std::string::npos)
        << summary.status().message();
  };
  const RewiringOptions same = options.rewiring;
  refused({.nonzero = 0.2, .index = IndexCodec::kPacked}, same,
          "nonzero = 0.3, now it is 0.2");
  refused({}, {}, "nonzero = 0.3, now it is (nothing)");
  refused({.nonzero = 0.3, .block = {2, 1}, .index = IndexCodec::kPacked}, same,
          "sparse block outputs = 1, now it is 2");
  refused({.nonzero = 0.3, .block = {1, 2}, .index = IndexCodec::kPacked}, same,
          "sparse block inputs = 1, now it is 2");
  refused({.nonzero = 0.3, .index = IndexCodec::kBitmap}, same,
          "sparse index = packed, now it is bitmap");
  refused({.nonzero = 0.3,
           .index = IndexCodec::kPacked,
           .weights = {"a.weight", "b.weight"}},
          same, "sparse weights = a.weight");
  const auto other_rewiring = [&](const RewiringOptions& rewiring,
                                  const std::string& says) {
    refused(plan.sparse, rewiring, says);
  };
  other_rewiring({.method = RewireMethod::kSet, .every = 3},
                 "rewiring = dsr, now it is set");
  other_rewiring({.method = std::nullopt},
                 "rewiring = dsr, now it is (nothing)");
  other_rewiring({.every = 2}, "rewiring every = 3 steps, now it is 2 steps");
  other_rewiring({}, "rewiring every = 3 steps, now it is schedule times 0.5");
  other_rewiring({.every = 3, .prune = 0.25}, "rewiring prunes = ");
  other_rewiring({.every = 3, .reset = StateReset::kNewBlocks},
                 "rewiring resets = all state, now it is state of new blocks");
  EXPECT_TRUE(Run(plan, options).ok());
}

TEST_F(SparseResume, OfADenseRunIsRefused) {
  const TestFolder folder;
  TrainOptions options;
  options.steps = 8;
  options.out_dir = folder.File("run");
  options.resume = true;
  ASSERT_TRUE(Run({}, options, 4).ok());
  const auto summary = Run({.sparse = {.nonzero = 0.3}}, options);
  ASSERT_FALSE(summary.ok());
  EXPECT_NE(
      summary.status().message().find("nonzero = (nothing), now it is 0.3"),
      std::string::npos)
      << summary.status().message();
}

}  // namespace
}  // namespace thimble::testing
