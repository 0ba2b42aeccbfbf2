// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "graph/op.h"
#include "models/wrn.h"
#include "ops/dropout.h"
#include "thimble/model.h"

namespace thimble {
namespace {

const ImageLayer kCifar = {.channels = 3, .height = 32, .width = 32};

TEST(Models, WideResidualNetworksHaveThePapersParameterCounts) {
  const std::pair<const char*, int64_t> expected[] = {
      {"wrn-28-2", 1'456'858},  {"wrn-22-2", 1'068'890}, {"wrn-16-2", 680'922},
      {"wrn-10-2", 292'954},    {"wrn-28-1.5", 821'466}, {"wrn-28-1", 366'938},
      {"wrn-28-0.75", 207'498}, {"wrn-28-0.5", 93'274}};
  for (const auto& [name, parameters] : expected) {
    auto model = BuildModel(name, {.batch = 2, .images = kCifar});
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(model->graph.ParameterCount(), parameters) << name;
    EXPECT_EQ(model->name, name);
  }
}

TEST(Models, WideResidualNetworksStartByFanOut) {
  auto model = BuildModel("wrn-28-2", {.batch = 1, .images = kCifar});
  ASSERT_TRUE(model.ok());
  for (const Value& value : model->graph.values()) {
    if (value.name == "stage1.block2.conv1.weight") {
      EXPECT_NEAR(value.init.value, 0.0833, 5e-5);
    }
    if (value.name == "stage3.block4.conv2.weight") {
      EXPECT_NEAR(value.init.value, 0.0417, 5e-5);
    }
  }
}

TEST(Models, UnknownNamesAndImpossibleShapesAreRefused) {
  for (const char* name : {"",
                           "vgg",
                           "wrn",
                           "wrn-28",
                           "wrn-27-2",
                           "wrn-4-2",
                           "wrn-28-0",
                           "wrn-28--1",
                           "wrn-28-2x",
                           "wrn-28-nan",
                           "wrn-6010-2",
                           "wrn-28-1e9",
                           "wrn-28-0x2",
                           "wrn- 28-2",
                           "wrn-28- 2",
                           "wrn-+28-2",
                           "wrn-28-+2",
                           "wrn-0x1c-2",
                           "wrn-28-0x1p1",
                           "wrn-28-inf",
                           "wrn-28-2 ",
                           "wrn--28-2",
                           "wrn-28-",
                           "wrn--2",
                           "wrn-99999999999999999999-2",
                           "wrn-28-2-2"}) {
    EXPECT_EQ(BuildModel(name, {.batch = 1, .images = kCifar}).status().code(),
              StatusCode::kUsage)
        << name;
  }
}

TEST(Models, NumbersInNamesAreDecimal) {
  const auto parameters = [](const char* name) {
    auto model = BuildModel(name, {.batch = 1, .images = kCifar});
    EXPECT_TRUE(model.ok()) << model.status().message();
    return model.ok() ? model->graph.ParameterCount() : -1;
  };
  EXPECT_EQ(parameters("wrn-010-01.50"), parameters("wrn-10-1.5"));
  EXPECT_EQ(parameters("wrn-10-.5"), parameters("wrn-10-5e-1"));
  EXPECT_EQ(parameters("resnet-020"), parameters("resnet-20"));
  EXPECT_EQ(parameters("lstm-1-010-032"), parameters("lstm-1-10-32"));
}

TEST(Models, RefusedWideNetworksLearnTheLimits) {
  for (const char* name :
       {"wrn-6010-2", "wrn-28-100.5", "wrn-28-0.03", "wrn-11-2"}) {
    const std::string says =
        BuildModel(name, {.batch = 1, .images = kCifar}).status().message();
    for (const char* limit : {"at most 6004", "K of at most 100",
                              "at least one of 16*K channels"}) {
      EXPECT_NE(says.find(limit), std::string::npos) << says;
    }
  }
  for (const char* name : {"wrn-10-100", "wrn-10-0.04"}) {
    EXPECT_TRUE(BuildModel(name, {.batch = 1, .images = kCifar}).ok()) << name;
  }
}

TEST(Models, DropoutsStandWhereTheyAreUsual) {
  const auto placed = [](const char* name) {
    auto model =
        BuildModel(name, {.batch = 2, .images = kCifar, .dropout = 0.3});
    EXPECT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(model->build_options, BuildOptions({{"dropout", 0.3}}));
    std::vector<std::string> readers;
    for (const Op& op : model->graph.ops()) {
      for (ValueId v : op.inputs) {
        const OpId maker = model->graph.value(v).producer;
        if (maker.valid() && Is<ops::Dropout>(model->graph.op(maker))) {
          readers.push_back(op.name);
        }
      }
    }
    return readers;
  };
  EXPECT_EQ(placed("mlp"), std::vector<std::string>{"fc3"});
  EXPECT_EQ(placed("cnn"), std::vector<std::string>{"fc"});
  EXPECT_EQ(
      placed("wrn-10-1"),
      (std::vector<std::string>{"stage1.block1.conv2", "stage2.block1.conv2",
                                "stage3.block1.conv2"}));
  for (const char* name : {"resnet-20", "resnet-164", "lstm-1-8-32"}) {
    EXPECT_EQ(
        BuildModel(name, {.images = kCifar, .dropout = 0.3}).status().code(),
        StatusCode::kUsage)
        << name;
  }
  for (const double rate : {-0.1, 1.0, 1.5, std::nan("")}) {
    EXPECT_EQ(BuildModel("mlp", {.dropout = rate}).status().code(),
              StatusCode::kUsage)
        << rate;
  }
}

TEST(Models, PresetsFollowThePaper) {
  EXPECT_EQ(PresetOf("wrn-28-2").learning_rate, 0.05);
  EXPECT_EQ(PresetOf("wrn-28-0.5").learning_rate, 0.1);
  EXPECT_EQ(PresetOf("wrn-28-2").epochs, 200);
  EXPECT_EQ(PresetOf("cnn").schedule, "cosine");
}

}  // namespace
}  // namespace thimble
