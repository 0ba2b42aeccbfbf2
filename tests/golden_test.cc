// SPDX-License-Identifier: Apache-2.0
//
// A small conv-BN network against values recorded from PyTorch in f64
// (tests/golden/conv_bn.json): ours may be kSlack times as wrong in f32 as
// PyTorch was in f32, or as wrong as one rounding.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "golden_check.h"
#include "kernels/testing.h"
#include "thimble/network.h"

namespace thimble::testing {
namespace {

class ConvBnGoldenTest : public GoldenTest {
 protected:
  void SetUp() override {
    ReadGolden("conv_bn.json");
    const Json& bn = golden_["bn"];
    const float eps = bn["eps"];
    const float momentum = bn["momentum"];
    const float scale = golden_["input"]["scale"];
    const float shift = golden_["input"]["shift"];
    Network net("golden", golden_["batch"]);
    ValueId x = net.Images({.channels = 1,
                            .height = 12,
                            .width = 12,
                            .mean = {-shift / scale},
                            .stddev = {1 / scale}});
    x = net.Conv2d("conv1", x, {.channels = 6});
    x = net.MaxPool(net.Relu(net.BatchNorm("bn1", x, eps, momentum)));
    ValueId y = net.Conv2d("conv2", x, {.channels = 8, .stride = 2});
    y = net.BatchNorm("bn2", y, eps, momentum);
    y = net.Relu(net.Add(y, net.Shortcut(x, 8, 2)));
    MakeSession(net.Finish(net.Linear("linear", net.GlobalAveragePool(y), 10)),
                {.poison = true});
  }
};

TEST_F(ConvBnGoldenTest, GradientsAreThoseOfPyTorch) {
  kernels::testing::ForEachTarget([this] {
    Load();
    ExpectFirstStep();
  });
}

TEST_F(ConvBnGoldenTest, LossesAndParametersOfThreeStepsAreThoseOfPyTorch) {
  kernels::testing::ForEachTarget([this] {
    Load();
    ExpectThreeSteps();
  });
}

TEST_F(ConvBnGoldenTest, RunningStatisticsAreThoseOfPyTorch) {
  kernels::testing::ForEachTarget([this] {
    Load();
    session_->TrainStep(plan_->batch(), golden_["sgd"]["lr"]);
    const Json& records = golden_["statistics_after_step_1"];
    ASSERT_EQ(plan_->statistics().size(), records.size());
    for (ValueId v : plan_->statistics()) {
      const std::string& name = plan_->graph().value(v).name;
      // "bn1.running_mean" is recorded as "bn1.mean".
      const std::string recorded =
          name.substr(0, 4) + name.substr(name.find('_') + 1);
      SCOPED_TRACE(name);
      const Json& record = records.at(recorded);
      const std::vector<double> want = record["values"];
      const std::span<const float> got = session_->Floats(v);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(got[i], want[i],
                    Bound(record["f32_error"], record["floor"]));
      }
    }
  });
}

}  // namespace
}  // namespace thimble::testing
