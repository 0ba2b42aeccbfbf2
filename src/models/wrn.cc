// SPDX-License-Identifier: Apache-2.0
#include "models/wrn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "thimble/number.h"

namespace thimble::models {
namespace {

constexpr int64_t kMaxDepth = 6 * 1000 + 4;
constexpr double kMaxWidth = 100;

ValueId Block(Network& net, const std::string& name, ValueId x,
              int64_t in_channels, int64_t channels, int64_t stride,
              double dropout) {
  const bool same = stride == 1 && in_channels == channels;
  // Before the branch, so that backward comes to it last: the gradient stays
  // as small as the block's output until x is not needed any more.
  const ValueId shortcut = same ? x : net.Shortcut(x, channels, stride);
  const ValueId a = net.Relu(net.BatchNorm(name + ".bn1", x));
  const ValueId y =
      net.Conv2d(name + ".conv1", a, {.channels = channels, .stride = stride});
  const ValueId b =
      net.Dropout(net.Relu(net.BatchNorm(name + ".bn2", y)), dropout);
  const ValueId z = net.Conv2d(name + ".conv2", b, {.channels = channels});
  return net.Add(shortcut, z);
}

}  // namespace

Result<std::optional<WrnShape>> ParseWrnName(const std::string& name) {
  if (name.rfind("wrn-", 0) != 0) return std::optional<WrnShape>();
  const std::string_view numbers = std::string_view(name).substr(4);
  const size_t dash = std::min(numbers.find('-'), numbers.size());
  const auto depth = ParseWhole(numbers.substr(0, dash));
  const auto width =
      ParseDecimal<double>(numbers.substr(std::min(dash + 1, numbers.size())));
  const WrnShape shape{.depth = static_cast<int64_t>(std::min(
                           depth.value_or(0), uint64_t{kMaxDepth} + 1)),
                       .width = width.value_or(0)};
  if (shape.depth < 10 || shape.depth > kMaxDepth ||
      (shape.depth - 4) % 6 != 0 || !(shape.width > 0) ||
      shape.width > kMaxWidth || std::lround(16 * shape.width) < 1) {
    return Status::Usage(fmt::format(
        "'{}' is no wide residual network; use wrn-D-K with D = 6n+4 (10, 16, "
        "22, 28, …, at most {}) and K of at most {} that leaves at least one "
        "of 16*K channels, e.g. wrn-28-2 or wrn-16-0.75",
        name, kMaxDepth, kMaxWidth));
  }
  return std::optional<WrnShape>(shape);
}

Result<Model> BuildWrn(const std::string& name, const WrnShape& shape,
                       const ModelOptions& options) {
  Network net(name, options.batch);
  ValueId x = net.Images(options.images);
  int64_t channels = 16;
  x = net.Conv2d("stem", x, {.channels = channels});
  const int64_t blocks = (shape.depth - 4) / 6;
  for (int64_t stage = 0; stage < 3; ++stage) {
    const double wide = static_cast<double>(16 << stage) * shape.width;
    const int64_t out = std::lround(wide);
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      x = Block(net, fmt::format("stage{}.block{}", stage + 1, block + 1), x,
                channels, out, stride, options.dropout.value_or(0));
      channels = out;
    }
  }
  x = net.GlobalAveragePool(net.Relu(net.BatchNorm("bn", x)));
  return net.Finish(net.Linear("fc", x, options.classes));
}

TrainingPreset WrnPreset(const WrnShape& shape) {
  TrainingPreset preset;
  preset.images = {.channels = 3, .height = 32, .width = 32};
  preset.learning_rate = shape.width <= 0.5 ? 0.1 : 0.05;
  // Epochs 60, 120 and 160 of 200, each a fifth of the rate before.
  preset.schedule = "steps:0.3=0.2,0.6=0.04,0.8=0.008";
  preset.epochs = 200;
  return preset;
}

}  // namespace thimble::models
