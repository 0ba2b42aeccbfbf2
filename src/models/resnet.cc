// SPDX-License-Identifier: Apache-2.0
#include "models/resnet.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/wrn.h"
#include "thimble/number.h"

namespace thimble::models {
namespace {

constexpr const char* kResnetPrefix = "resnet-";
constexpr const char* kImagenetPrefix = "resnet-imagenet-";
constexpr int64_t kFirstBottleneckDepth = 164;
constexpr int64_t kMaxResnetDepth = 6002;

struct BlockShape {
  int64_t channels = 0;  // out; a quarter of them inside
  int64_t stride = 1;
  bool projects = false;
  bool stride_in_conv2 = false;
};

ValueId Bottleneck(Network& net, const std::string& name, ValueId x,
                   const BlockShape& shape) {
  const int64_t inside = shape.channels / 4;
  const auto conv1x1 = [&](const char* conv, ValueId from, int64_t channels,
                           int64_t stride) {
    return net.Conv2d(
        name + conv, from,
        {.channels = channels, .kernel = 1, .stride = stride, .padding = 0});
  };
  const int64_t stride2 = shape.stride_in_conv2 ? shape.stride : 1;
  const ValueId a = net.Relu(net.BatchNorm(name + ".bn1", x));
  const ValueId shortcut =
      shape.projects ? conv1x1(".project", a, shape.channels, shape.stride) : x;
  const ValueId y = conv1x1(".conv1", a, inside, shape.stride / stride2);
  const ValueId b = net.Relu(net.BatchNorm(name + ".bn2", y));
  const ValueId z =
      net.Conv2d(name + ".conv2", b, {.channels = inside, .stride = stride2});
  const ValueId c = net.Relu(net.BatchNorm(name + ".bn3", z));
  return net.Add(shortcut, conv1x1(".conv3", c, shape.channels, 1));
}

// `stage` counts from 0. Its first block changes the number of channels, and
// in all stages but the first the size of the images.
ValueId Stage(Network& net, ValueId x, int64_t stage, int64_t blocks,
              BlockShape shape) {
  for (int64_t block = 0; block < blocks; ++block) {
    shape.projects = block == 0;
    shape.stride = block == 0 && stage > 0 ? 2 : 1;
    x = Bottleneck(net, fmt::format("stage{}.block{}", stage + 1, block + 1), x,
                   shape);
  }
  return x;
}

Result<Model> Finish(Network& net, ValueId x, int64_t classes) {
  x = net.GlobalAveragePool(net.Relu(net.BatchNorm("bn", x)));
  return net.Finish(net.Linear("fc", x, classes));
}

Result<Model> BuildCifar(const std::string& name, int64_t depth,
                         const ModelOptions& options) {
  Network net(name, options.batch);
  ValueId x = net.Images(options.images);
  x = net.Conv2d("stem", x, {.channels = 16});
  for (int64_t stage = 0; stage < 3; ++stage) {
    x = Stage(net, x, stage, (depth - 2) / 9, {.channels = 64 << stage});
  }
  return Finish(net, x, options.classes);
}

Result<Model> BuildImagenet(const std::string& name, int64_t depth,
                            const ModelOptions& options) {
  Network net(name, options.batch);
  ValueId x = net.Images(options.images);
  x = net.Conv2d("stem", x,
                 {.channels = 64, .kernel = 7, .stride = 2, .padding = 3});
  x = net.MaxPool(x, {.kernel = 3, .stride = 2, .padding = 1});
  const std::array<int64_t, 4> blocks = StageBlocks(depth);
  for (int64_t stage = 0; stage < 4; ++stage) {
    x = Stage(net, x, stage, blocks[static_cast<size_t>(stage)],
              {.channels = 256 << stage, .stride_in_conv2 = true});
  }
  return Finish(net, x, options.classes);
}

bool IsDepth(const ResnetShape& shape) {
  const int64_t weighted = shape.depth - 2;  // without stem and classifier
  if (weighted < 1 || shape.depth > kMaxResnetDepth) return false;
  // Three layers in a block, and a block in each of four stages.
  if (shape.imagenet) return weighted % 3 == 0 && weighted >= 12;
  return weighted % (shape.bottleneck ? 9 : 6) == 0;
}

}  // namespace

Result<std::optional<ResnetShape>> ParseResnetName(const std::string& name) {
  if (name.rfind(kResnetPrefix, 0) != 0) return std::optional<ResnetShape>();
  ResnetShape shape;
  shape.imagenet = name.rfind(kImagenetPrefix, 0) == 0;
  const std::string text = name.substr(
      std::string(shape.imagenet ? kImagenetPrefix : kResnetPrefix).size());
  // Past the largest depth they are all alike.
  shape.depth = static_cast<int64_t>(
      std::min(ParseWhole(text).value_or(0), uint64_t{kMaxResnetDepth} + 1));
  shape.bottleneck = shape.imagenet || shape.depth >= kFirstBottleneckDepth;
  if (IsDepth(shape)) return std::optional<ResnetShape>(shape);
  return Status::Usage(fmt::format(
      "'{}' is no residual network; use resnet-D with D = 6n+2 below {} (20, "
      "32, 44, 56, 110, …) and D = 9n+2 from there on (164, 1001, …), or "
      "resnet-imagenet-D with D = 3n+2 of at least 14 (50, 101, 152, 200, "
      "1001, …); D is at most {}",
      name, kFirstBottleneckDepth, kMaxResnetDepth));
}

std::array<int64_t, 4> StageBlocks(int64_t depth) {
  switch (depth) {
    case 50:
      return {3, 4, 6, 3};
    case 101:
      return {3, 4, 23, 3};
    case 152:
      return {3, 8, 36, 3};
    case 200:
      return {3, 24, 36, 3};
    default:
      break;
  }
  const int64_t blocks = (depth - 2) / 3;
  const int64_t over = blocks % 4;
  std::array<int64_t, 4> stages;
  stages.fill(blocks / 4);
  if (over > 0) ++stages[2];
  if (over > 1) ++stages[1];
  if (over > 2) ++stages[3];
  return stages;
}

Result<Model> BuildResnet(const std::string& name, const ResnetShape& shape,
                          const ModelOptions& options) {
  if (shape.imagenet) return BuildImagenet(name, shape.depth, options);
  if (shape.bottleneck) return BuildCifar(name, shape.depth, options);
  // Of width 1, wide residual networks have these very blocks. Their depth
  // counts the two projections that other forms of them have.
  return BuildWrn(name, {.depth = shape.depth + 2, .width = 1}, options);
}

TrainingPreset ResnetPreset(const ResnetShape& shape) {
  TrainingPreset preset;
  preset.learning_rate = 0.1;
  if (shape.imagenet) {
    preset.images = {.channels = 3, .height = 224, .width = 224};
    preset.classes = 1000;
    preset.schedule = "steps:0.33=0.1,0.67=0.01";
    preset.epochs = 90;
    return preset;
  }
  preset.images = {.channels = 3, .height = 32, .width = 32};
  // Iterations 32,000 and 48,000 of 64,000 at batch 128.
  preset.schedule = "steps:0.5=0.1,0.75=0.01";
  preset.epochs = 164;
  preset.warmup_steps = 400;
  return preset;
}

}  // namespace thimble::models
