// SPDX-License-Identifier: Apache-2.0
//
// A run goes on with its own model only: parameters of the same names and
// shapes do not make two models one.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/test_folder.h"
#include "small_synthetic.h"
#include "thimble/network.h"
#include "thimble/plan.h"
#include "thimble/trainer.h"

namespace thimble::testing {
namespace {

// What no parameter's name or shape shows.
struct Rates {
  int64_t stride = 2;
  int64_t padding = 1;
  float epsilon = 1e-5f;
  float momentum = 0.1f;
  double dropout = 0.25;
  int64_t window = 2;
  float stddev = 60.0f;
};

class ResumeModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    data_ = SmallSynthetic::Open();
    ASSERT_NE(data_, nullptr);
  }

  Status Run(const Rates& rates, bool resume, int threads = 1) {
    Network net("mine", 20);
    ValueId x = net.Images({.channels = 1,
                            .height = 14,
                            .width = 14,
                            .mean = {120},
                            .stddev = {rates.stddev}});
    x = net.Conv2d(
        "conv", x,
        {.channels = 2, .stride = rates.stride, .padding = rates.padding});
    x = net.BatchNorm("bn", x, rates.epsilon, rates.momentum);
    x = net.MaxPool(net.Relu(x), {.kernel = rates.window});
    x = net.Dropout(net.GlobalAveragePool(x), rates.dropout);
    const Result<Model> model = net.Finish(net.Linear("fc", x, 10));
    EXPECT_TRUE(model.ok()) << model.status().message();
    const Result<Plan> plan = MakePlan(*model, {.threads = threads});
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    TrainOptions options;
    options.steps = 2;
    options.out_dir = folder_.File("run");
    options.resume = resume;
    return Train(*plan, *data_, options, nullptr).status();
  }

  TestFolder folder_;
  std::unique_ptr<Dataset> data_;
};

TEST_F(ResumeModelTest, RefusesAModelOfOtherAttributes) {
  const Status trained = Run({}, false);
  ASSERT_TRUE(trained.ok()) << trained.message();
  const std::pair<const char*, Rates> changes[] = {
      {"stride", {.stride = 1}},       {"padding", {.padding = 0}},
      {"epsilon", {.epsilon = 1e-3f}}, {"momentum", {.momentum = 0.2f}},
      {"dropout", {.dropout = 0.3}},   {"no dropout", {.dropout = 0}},
      {"window", {.window = 3}},       {"stddev", {.stddev = 61.0f}}};
  for (const auto& [what, rates] : changes) {
    const Status status = Run(rates, true);
    ASSERT_FALSE(status.ok()) << what;
    EXPECT_NE(status.message().find("the model's layers differ"),
              std::string::npos)
        << what << ": " << status.message();
  }
  const Status same = Run({}, true, 2);
  EXPECT_TRUE(same.ok()) << same.message();
}

}  // namespace
}  // namespace thimble::testing
