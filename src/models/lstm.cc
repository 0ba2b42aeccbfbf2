// SPDX-License-Identifier: Apache-2.0
#include "models/lstm.h"

#include <fmt/format.h>

#include <cstdlib>
#include <vector>

namespace thimble::models {
namespace {

constexpr const char* kLstmPrefix = "lstm-";
constexpr int64_t kMaxLayers = 64;
constexpr int64_t kMaxHidden = 1 << 14;
constexpr int64_t kMaxSteps = 10'000;
constexpr int64_t kImageSide = 28;
constexpr int64_t kPlannedFeatures = 50;
constexpr int64_t kFewSteps = 112;

// The number at `text`, which is moved behind it, or −1.
int64_t ReadNumber(const char*& text) {
  if (*text < '1' || *text > '9') return -1;
  char* end = nullptr;
  const int64_t number = std::strtol(text, &end, 10);
  text = end;
  return number;
}

bool Within(int64_t number, int64_t least, int64_t most) {
  return number >= least && number <= most;
}

}  // namespace

Result<std::optional<LstmModelShape>> ParseLstmName(const std::string& name) {
  if (name.rfind(kLstmPrefix, 0) != 0) return std::optional<LstmModelShape>();
  const char* text = name.c_str() + std::string(kLstmPrefix).size();
  LstmModelShape shape;
  shape.layers = ReadNumber(text);
  shape.hidden = *text == '-' ? ReadNumber(++text) : -1;
  shape.steps = *text == '-' ? ReadNumber(++text) : -1;
  // A single step has nothing to hand on: mlp does that.
  if (*text == '\0' && Within(shape.layers, 1, kMaxLayers) &&
      Within(shape.hidden, 1, kMaxHidden) &&
      Within(shape.steps, 2, kMaxSteps)) {
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
