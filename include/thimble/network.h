// SPDX-License-Identifier: Apache-2.0
//
// Network: builds a Model layer by layer. A layer that does not fit is
// remembered, later calls do nothing, and Finish returns the first error, so
// that a network can be written down without checks between the lines:
//
//   Network net("mine", /*batch=*/32);
//   ValueId x = net.Images({.channels = 1, .height = 28, .width = 28});
//   x = net.Relu(net.BatchNorm("bn1", net.Conv2d("conv1", x, {.channels =
//   8}))); x = net.Linear("head", net.GlobalAveragePool(x), 10); Result<Model>
//   model = net.Finish(x);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "thimble/graph.h"
#include "thimble/status.h"

namespace thimble {

struct ImageLayer {
  int64_t channels = 1;
  int64_t height = 28;
  int64_t width = 28;
  // Bytes become (x − mean) / stddev, all three in 0 … 255; one per channel, or
  // one for all.
  std::vector<float> mean = {127.5f};
  std::vector<float> stddev = {127.5f};
};

struct ConvLayer {
  int64_t channels = 1;  // out
  int64_t kernel = 3;
  int64_t stride = 1;
  int64_t padding = 1;
};

struct PoolLayer {
  int64_t kernel = 2;
  int64_t stride = 2;
  int64_t padding = 0;
};

// What the steps of an LSTM layer share.
struct LstmWeights {
  ValueId weight_x, weight_h, bias;
};

// What one step hands to the next. Not valid before the first one: zeros.
struct LstmState {
  ValueId h, c;
};

class Network {
 public:
  // `batch` is a capacity: a step may hold fewer images.
  Network(std::string name, int64_t batch);

  // The network's input: bytes, normalised to f32. Call it once, first.
  ValueId Images(const ImageLayer& layer);
  // The same, to be read as a sequence: `steps` parts of equal length of each
  // image's bytes, channel by channel and row by row. Call it once, first,
  // instead of Images. Returns that length.
  int64_t ImageSequence(const ImageLayer& layer, int64_t steps);
  // Part `step`, from 0, of all images: rows, normalised to f32.
  ValueId SequenceStep(int64_t step);

  // Parameters are named "<name>.weight" and so on; names must be unique, and
  // UTF-8, as the network's own.
  // Convolutions have no bias and start He-normal by fan-out.
  ValueId Conv2d(const std::string& name, ValueId x, const ConvLayer& layer);
  // Weights start uniform in ±1/sqrt(in), the bias at 0.
  ValueId Linear(const std::string& name, ValueId x, int64_t features,
                 bool bias = true);
  ValueId Bias(const std::string& name, ValueId x);
  ValueId BatchNorm(const std::string& name, ValueId x, float epsilon = 1e-5f,
                    float momentum = 0.1f);
  ValueId Relu(ValueId x);
  // In training, drops a share `rate` in [0, 1) of the values by chance and
  // scales the others by 1 / (1 − rate); in evaluation, and with rate 0, x as
  // it is.
  ValueId Dropout(ValueId x, double rate);
  ValueId MaxPool(ValueId x, const PoolLayer& layer = {});
  ValueId AveragePool(ValueId x, const PoolLayer& layer = {});
  ValueId GlobalAveragePool(ValueId x);
  ValueId Add(ValueId a, ValueId b);
  // The identity across a change of shape: every stride-th row and column, then
  // channels of zeros up to `channels`.
  ValueId Shortcut(ValueId x, int64_t channels, int64_t stride);
  ValueId Flatten(ValueId x);

  // Weights start uniform in ±1/sqrt(hidden), the bias at 0.
  LstmWeights Lstm(const std::string& name, int64_t features, int64_t hidden);
  // One step on rows x; `before` is what the step before gave, or {}.
  LstmState LstmStep(const std::string& name, ValueId x,
                     const LstmWeights& weights, const LstmState& before);

  // Adds labels and the softmax cross-entropy of `logits` [N, classes].
  Result<Model> Finish(ValueId logits);

 private:
  ValueId AddLayer(const std::string& name, std::shared_ptr<const OpDef> def,
                   std::vector<ValueId> inputs);
  // All outputs; none after an error.
  std::vector<ValueId> AddOp(const std::string& name,
                             std::shared_ptr<const OpDef> def,
                             std::vector<ValueId> inputs);
  // Makes the input; false where the layer is impossible.
  bool AddImages(const ImageLayer& layer);
  ValueId Parameter(const std::string& name, const Shape& shape, Init init,
                    Role role = Role::kParameter);
  std::string Unnamed(const char* kind);
  void Fail(std::string message);
  // Fails where it could not be written to a file.
  bool CheckName(const std::string& name);
  // False after an error, or when `x` came from none of this network's calls.
  bool Usable(ValueId x);

  Model model_;
  ValueId images_;
  int64_t batch_;
  // One per channel of the images: y = x * scale + shift.
  std::vector<float> image_scale_, image_shift_;
  int64_t sequence_steps_ = 0;
  int unnamed_ = 0;
  std::unordered_set<std::string> parameter_names_;
  Status status_;
};

}  // namespace thimble
