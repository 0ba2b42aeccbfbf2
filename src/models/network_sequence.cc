// SPDX-License-Identifier: Apache-2.0
//
// Layers of Network that go along a sequence, step by step.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <utility>

#include "graph/op.h"
#include "models/extents.h"
#include "ops/image_slice.h"
#include "ops/lstm_cell.h"
#include "ops/lstm_gates.h"
#include "thimble/network.h"

namespace thimble {
namespace {

// An LSTM starts by keeping most of its state: with 0, a half of it would be
// left after one step, and no gradient after some dozens.
constexpr float kForgetOffset = 1.0f;

}  // namespace

int64_t Network::ImageSequence(const ImageLayer& layer, int64_t steps) {
  if (!AddImages(layer)) return 0;
  const int64_t values = layer.channels * layer.height * layer.width;
  if (steps < 1 || values % steps != 0) {
    Fail(fmt::format(
        "images [{}, {}, {}] of {} values cannot be read in {} equal steps; "
        "use a number of steps that divides {}",
        layer.channels, layer.height, layer.width, values, steps, values));
    return 0;
  }
  sequence_steps_ = steps;
  return values / steps;
}

ValueId Network::SequenceStep(int64_t step) {
  if (!status_.ok()) return {};
  if (step < 0 || step >= sequence_steps_) {
    Fail(fmt::format("step {} of a sequence of {}", step, sequence_steps_));
    return {};
  }
  const int64_t count =
      model_.graph.value(images_).spec.shape.elements_from(1) / sequence_steps_;
  return AddLayer(fmt::format("step{}", step + 1),
                  std::make_shared<ops::ImageSlice>(step * count, count,
                                                    image_scale_, image_shift_),
                  {images_});
}

LstmWeights Network::Lstm(const std::string& name, int64_t features,
                          int64_t hidden) {
  // Checked here, so that four times as many is no overflow.
  if (status_.ok() && !InRange(hidden)) {
    Fail(fmt::format("lstm '{}': hidden must be between 1 and {}, got {}", name,
                     kMaxExtent, hidden));
  }
  if (!status_.ok()) return {};
  const Init uniform{Init::Kind::kUniform,
                     1.0f / std::sqrt(static_cast<float>(hidden))};
  LstmWeights weights;
  weights.weight_x =
      Parameter(name + ".weight_x", {4 * hidden, features}, uniform);
  weights.weight_h =
      Parameter(name + ".weight_h", {4 * hidden, hidden}, uniform);
  weights.bias = Parameter(name + ".bias", {4 * hidden}, {});
  return weights;
}

LstmState Network::LstmStep(const std::string& name, ValueId x,
                            const LstmWeights& weights,
                            const LstmState& before) {
  const bool recurrent = before.h.valid() && before.c.valid();
  std::vector<ValueId> inputs = {x, weights.weight_x, weights.bias};
  if (recurrent) {
    inputs.push_back(before.h);
    inputs.push_back(weights.weight_h);
  }
  const ValueId z =
      AddLayer(name + ".gates", std::make_shared<ops::LstmGates>(recurrent),
               std::move(inputs));
  inputs = {z};
  if (recurrent) inputs.push_back(before.c);
  const auto made = AddOp(
      name + ".cell", std::make_shared<ops::LstmCell>(recurrent, kForgetOffset),
      std::move(inputs));
  if (made.empty()) return {};
  return {made[0], made[1]};
}

}  // namespace thimble
