// SPDX-License-Identifier: Apache-2.0
#include "models/lstm.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "thimble/number.h"

namespace thimble::models {
namespace {

constexpr const char* kLstmPrefix = "lstm-";
constexpr int64_t kMaxLayers = 64;
constexpr int64_t kMaxHidden = 1 << 14;
constexpr int64_t kMaxSteps = 10'000;
constexpr int64_t kImageSide = 28;
constexpr int64_t kPlannedFeatures = 50;
constexpr int64_t kFewSteps = 112;

// The number in front of the first dash of `text`, which keeps what is behind
// it; 0 where there is none, or it is past `most`.
int64_t TakeNumber(std::string_view& text, int64_t most) {
  const size_t dash = std::min(text.find('-'), text.size());
  const auto number = ParseWhole(text.substr(0, dash));
  text.remove_prefix(std::min(dash + 1, text.size()));
  const bool fits = number.value_or(0) <= static_cast<uint64_t>(most);
  return fits ? static_cast<int64_t>(number.value_or(0)) : 0;
}

}  // namespace

Result<std::optional<LstmModelShape>> ParseLstmName(const std::string& name) {
  if (name.rfind(kLstmPrefix, 0) != 0) return std::optional<LstmModelShape>();
  std::string_view text =
      std::string_view(name).substr(std::string_view(kLstmPrefix).size());
  LstmModelShape shape;
  shape.layers = TakeNumber(text, kMaxLayers);
  shape.hidden = TakeNumber(text, kMaxHidden);
  const bool is_last = text.find('-') == text.npos;
  shape.steps = TakeNumber(text, kMaxSteps);
  // A single step has nothing to hand on: mlp does that.
  if (is_last && shape.layers >= 1 && shape.hidden >= 1 && shape.steps >= 2) {
    return std::optional<LstmModelShape>(shape);
  }
  return Status::Usage(fmt::format(
      "'{}' is no LSTM; use lstm-LAYERS-HIDDEN-STEPS with up to {} layers, {} "
      "hidden units and 2 to {} steps, e.g. lstm-1-128-28 to read 28x28 images "
      "row by row, or lstm-1-128-784 pixel by pixel",
      name, kMaxLayers, kMaxHidden, kMaxSteps));
}

Result<Model> BuildLstm(const std::string& name, const LstmModelShape& shape,
                        const ModelOptions& options) {
  Network net(name, options.batch);
  int64_t features = net.ImageSequence(options.images, shape.steps);
  std::vector<LstmWeights> weights;
  for (int64_t layer = 1; layer <= shape.layers; ++layer) {
    weights.push_back(
        net.Lstm(fmt::format("lstm{}", layer), features, shape.hidden));
    features = shape.hidden;
  }
  std::vector<LstmState> states(weights.size());
  ValueId x;
  for (int64_t step = 0; step < shape.steps; ++step) {
    x = net.SequenceStep(step);
    for (size_t layer = 0; layer < weights.size(); ++layer) {
      states[layer] =
          net.LstmStep(fmt::format("lstm{}.step{}", layer + 1, step + 1), x,
                       weights[layer], states[layer]);
      x = states[layer].h;
    }
  }
  return net.Finish(net.Linear("fc", x, options.classes));
}

TrainingPreset LstmPreset(const LstmModelShape& shape) {
  TrainingPreset preset;
  if (kImageSide * kImageSide % shape.steps != 0) {
    preset.images = {
        .channels = 1, .height = shape.steps, .width = kPlannedFeatures};
  }
  // Over hundreds of steps gradients vary much more, and nothing clips them.
  preset.learning_rate = shape.steps <= kFewSteps ? 0.2 : 0.02;
  return preset;
}

}  // namespace thimble::models
