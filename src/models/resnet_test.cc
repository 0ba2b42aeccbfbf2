// SPDX-License-Identifier: Apache-2.0
#include "models/resnet.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <string>
#include <utility>

#include "thimble/model.h"

namespace thimble {
namespace {

using Stages = std::array<int64_t, 4>;

Result<Model> Build(const std::string& name) {
  const TrainingPreset preset = PresetOf(name);
  return BuildModel(
      name, {.batch = 2, .images = preset.images, .classes = preset.classes});
}

// Published, to the digits that papers and model zoos print: 0.27M, 0.85M,
// 1.7M, 1.7M, 10.3M; 25.5M, 44.5M, 60.2M, 64.7M.
TEST(Resnet, HasThePublishedParameterCounts) {
  const std::pair<const char*, int64_t> expected[] = {
      {"resnet-20", 269'722},
      {"resnet-56", 853'018},
      {"resnet-110", 1'727'962},
      {"resnet-164", 1'703'258},
      {"resnet-1001", 10'327'706},
      {"resnet-imagenet-50", 25'549'352},
      {"resnet-imagenet-101", 44'541'480},
      {"resnet-imagenet-152", 60'185'128},
      {"resnet-imagenet-200", 64'666'152}};
  for (const auto& [name, parameters] : expected) {
    const Result<Model> model = Build(name);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(model->graph.ParameterCount(), parameters) << name;
    EXPECT_EQ(model->name, name);
  }
}

const Value* Find(const Model& model, const std::string& name) {
  for (const Value& value : model.graph.values()) {
    if (value.name == name) return &value;
  }
  ADD_FAILURE() << "no value " << name;
  return nullptr;
}

// Convolutions and the classifier on the longest path.
int64_t DepthOf(const Model& model) {
  std::vector<int64_t> depth(model.graph.values().size());
  for (const Op& op : model.graph.ops()) {
    int64_t deepest = 0;
    bool weighted = false;
    for (ValueId in : op.inputs) {
      deepest = std::max(deepest, depth[in.i]);
      const Value& value = model.graph.value(in);
      weighted |= value.role == Role::kParameter && value.spec.shape.rank() > 1;
    }
    for (ValueId out : op.outputs) depth[out.i] = deepest + (weighted ? 1 : 0);
  }
  return depth[model.ends.outputs[0].value.i];
}

TEST(Resnet, HasTheLayersThatItsNameSays) {
  for (const int64_t d : {8, 20, 110, 164, 173, 1001}) {
    const Result<Model> model = Build("resnet-" + std::to_string(d));
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(DepthOf(*model), d);
  }
  for (const int64_t d : {14, 50, 101, 125, 128, 131, 152, 200, 1001}) {
    const Result<Model> model = Build("resnet-imagenet-" + std::to_string(d));
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(DepthOf(*model), d);
  }
}

TEST(Resnet, HalvesImagesFromStageToStage) {
  const Result<Model> deep = Build("resnet-164");
  ASSERT_TRUE(deep.ok());
  EXPECT_EQ(Find(*deep, "stage1.block18.conv3")->spec.shape,
            (Shape{2, 64, 32, 32}));
  EXPECT_EQ(Find(*deep, "stage2.block1.conv1")->spec.shape,
            (Shape{2, 32, 16, 16}));
  EXPECT_EQ(Find(*deep, "stage3.block18.conv3")->spec.shape,
            (Shape{2, 256, 8, 8}));
  const Result<Model> large = Build("resnet-imagenet-50");
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(Find(*large, "stem")->spec.shape, (Shape{2, 64, 112, 112}));
  EXPECT_EQ(Find(*large, "stage1.block3.conv3")->spec.shape,
            (Shape{2, 256, 56, 56}));
  EXPECT_EQ(Find(*large, "stage2.block1.conv1")->spec.shape,
            (Shape{2, 128, 56, 56}));
  EXPECT_EQ(Find(*large, "stage4.block3.conv3")->spec.shape,
            (Shape{2, 2048, 7, 7}));
  EXPECT_EQ(large->graph.value(large->ends.outputs[0].value).spec.shape,
            (Shape{2, 1000}));
}

TEST(Resnet, GrowsEveryStageWithDepth) {
  EXPECT_EQ(models::StageBlocks(200), (Stages{3, 24, 36, 3}));
  EXPECT_EQ(models::StageBlocks(1001), (Stages{83, 83, 84, 83}));
  EXPECT_EQ(models::StageBlocks(1004), (Stages{83, 84, 84, 83}));
  EXPECT_EQ(models::StageBlocks(1007), (Stages{83, 84, 84, 84}));
  for (int64_t depth = 14; depth <= 1001; depth += 3) {
    const Stages stages = models::StageBlocks(depth);
    EXPECT_EQ(3 * std::accumulate(stages.begin(), stages.end(), int64_t{0}) + 2,
              depth);
  }
}

TEST(Resnet, RefusesDepthsThatItDoesNotHave) {
  for (const char* name : {"resnet",
                           "resnet-",
                           "resnet-2",
                           "resnet-49",
                           "resnet-29",
                           "resnet-170",
                           "resnet-0",
                           "resnet--8",
                           "resnet-110x",
                           "resnet-6011",
                           "resnet-999999",
                           "resnet-99999999999999999999",
                           "resnet-imagenet",
                           "resnet-imagenet-",
                           "resnet-imagenet-11",
                           "resnet-imagenet-18",
                           "resnet-imagenet-1000",
                           "resnet-0x14",
                           "resnet- 20",
                           "resnet-+20",
                           "resnet-20 ",
                           "resnet-imagenet-0x32",
                           "resnet-imagenet- 50"}) {
    const Status status = BuildModel(name, {}).status();
    EXPECT_EQ(status.code(), StatusCode::kUsage) << name;
    EXPECT_NE(status.message().find(name), std::string::npos);
  }
}

TEST(Resnet, PresetsFollowItsAuthors) {
  EXPECT_EQ(PresetOf("resnet-110").learning_rate, 0.1);
  EXPECT_EQ(PresetOf("resnet-1001").images.height, 32);
  EXPECT_EQ(PresetOf("resnet-1001").warmup_steps, 400);
  EXPECT_EQ(PresetOf("resnet-imagenet-50").images.width, 224);
  EXPECT_EQ(PresetOf("resnet-imagenet-50").classes, 1000);
}

}  // namespace
}  // namespace thimble
