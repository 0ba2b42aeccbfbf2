// SPDX-License-Identifier: Apache-2.0
//
// Two LSTM layers over the rows of small images against values recorded from
// PyTorch's LSTM in f64 (tests/golden/lstm.json): ours may be kSlack times as
// wrong in f32 as PyTorch was in f32, or as wrong as one rounding.
#include <gtest/gtest.h>

#include <string>

#include "golden_check.h"
#include "kernels/testing.h"
#include "thimble/model.h"

namespace thimble::testing {
namespace {

class LstmGoldenTest : public GoldenTest {
 protected:
  void SetUp() override {
    ReadGolden("lstm.json");
    const float scale = golden_["input"]["scale"];
    const float shift = golden_["input"]["shift"];
    const Json& shape = golden_["images"]["shape"];
    ModelOptions options;
    options.batch = golden_["batch"];
    options.images = {.channels = shape[1],
                      .height = shape[2],
                      .width = shape[3],
                      .mean = {-shift / scale},
                      .stddev = {1 / scale}};
    const std::string name = "lstm-" + golden_["layers"].dump() + "-" +
                             golden_["hidden"].dump() + "-" + shape[2].dump();
    MakeSession(BuildModel(name, options), {.poison = true});
  }
};

TEST_F(LstmGoldenTest, GradientsAreThoseOfPyTorch) {
  kernels::testing::ForEachTarget([this] {
    Load();
    ExpectFirstStep();
  });
}

TEST_F(LstmGoldenTest, LossesAndParametersOfThreeStepsAreThoseOfPyTorch) {
  kernels::testing::ForEachTarget([this] {
    Load();
    ExpectThreeSteps();
  });
}

}  // namespace
}  // namespace thimble::testing
