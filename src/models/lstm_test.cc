// SPDX-License-Identifier: Apache-2.0
#include "models/lstm.h"

#include <gtest/gtest.h>

#include <string>

#include "graph/op.h"
#include "ops/image_slice.h"
#include "ops/lstm_cell.h"
#include "ops/normalize.h"
#include "thimble/model.h"

namespace thimble {
namespace {

template <typename Def>
int64_t Count(const Model& model) {
  int64_t count = 0;
  for (const Op& op : model.graph.ops()) {
    if (Is<Def>(op)) ++count;
  }
  return count;
}

TEST(Lstm, HasOneSetOfWeightsPerLayerForAllSteps) {
  for (const int64_t steps : {2, 4, 28, 196, 784}) {
    const std::string name = "lstm-2-30-" + std::to_string(steps);
    const Result<Model> model = BuildModel(name, {.batch = 2});
    ASSERT_TRUE(model.ok()) << model.status().message();
    const int64_t features = 784 / steps;
    const int64_t gates = 4 * int64_t{30};
    EXPECT_EQ(model->graph.ParameterCount(),
              gates * (features + 30 + 1) + gates * (30 + 30 + 1) + 310);
    EXPECT_EQ(Count<ops::LstmCell>(*model), 2 * steps);
    EXPECT_EQ(model->name, name);
  }
}

// The image is never there as a whole in f32: only its bytes, and one step's
// values at a time.
TEST(Lstm, ReadsEachByteInOneStep) {
  const Result<Model> model = BuildModel("lstm-1-8-28", {.batch = 3});
  ASSERT_TRUE(model.ok()) << model.status().message();
  int64_t values = 0;
  for (const Op& op : model->graph.ops()) {
    if (op.inputs[0] != model->ends.feeds[0].value) continue;
    EXPECT_TRUE(Is<ops::ImageSlice>(op));
    const Shape& shape = model->graph.value(op.outputs[0]).spec.shape;
    EXPECT_EQ(shape, (Shape{3, 28}));
    values += shape[1];
  }
  EXPECT_EQ(values, 784);
  EXPECT_EQ(Count<ops::Normalize>(*model), 0);
}

TEST(Lstm, ReadsImagesOfSeveralChannels) {
  const ImageLayer cifar{.channels = 3, .height = 32, .width = 32};
  const Result<Model> rows =
      BuildModel("lstm-1-8-96", {.batch = 1, .images = cifar});
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  EXPECT_EQ(Count<ops::ImageSlice>(*rows), 96);
}

TEST(Lstm, RefusesStepsThatDoNotDivideTheImage) {
  for (const char* name : {"lstm-1-8-3", "lstm-1-8-785", "lstm-1-8-1000"}) {
    const Status status = BuildModel(name, {.batch = 1}).status();
    EXPECT_EQ(status.code(), StatusCode::kUsage) << name;
    EXPECT_NE(status.message().find("784"), std::string::npos)
        << status.message();
  }
}

TEST(Lstm, RefusesNamesThatAreNone) {
  for (const char* name :
       {"lstm",           "lstm-",         "lstm-1",
        "lstm-1-8",       "lstm-1-8-",     "lstm-0-8-28",
        "lstm-1-0-28",    "lstm-1-8-0",    "lstm-1-8-1",
        "lstm-1-8-28x",   "lstm-1-8-28-2", "lstm--1-8-28",
        "lstm-1-8--28",   "lstm-65-8-28",  "lstm-1-16385-28",
        "lstm-1-8-10001", "lstm- 1-8-28",  "lstm-1-8-99999999999999999999",
        "lstm-1-8-0x1c",  "lstm-0x1-8-28", "lstm-1-+8-28",
        "lstm-1-8-28 ",   "lstm-1-8-28-",  "lstm--8-28"}) {
    const Status status = BuildModel(name, {.batch = 1}).status();
    EXPECT_EQ(status.code(), StatusCode::kUsage) << name;
    EXPECT_NE(status.message().find(name), std::string::npos);
  }
}

// Without data a plan of any number of steps can be made.
TEST(Lstm, PresetImagesFitItsSteps) {
  for (const char* name : {"lstm-1-8-28", "lstm-1-8-784", "lstm-1-8-1000"}) {
    const Result<Model> model =
        BuildModel(name, {.batch = 1, .images = PresetOf(name).images});
    EXPECT_TRUE(model.ok()) << model.status().message();
  }
  EXPECT_EQ(PresetOf("lstm-1-8-28").images.height, 28);
  EXPECT_EQ(PresetOf("lstm-1-8-1000").images.width, 50);
  EXPECT_GT(PresetOf("lstm-1-8-28").learning_rate,
            PresetOf("lstm-1-8-784").learning_rate);
}

}  // namespace
}  // namespace thimble
