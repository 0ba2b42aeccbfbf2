// SPDX-License-Identifier: Apache-2.0
//
// Network: builds a Model layer by layer. A network can be written down without
// checks between the lines: the first layer that does not fit is remembered,
// later calls do nothing, and Finish returns the error. One thread at a time.
//
//   Network net("mine", /*batch=*/32);
//   ValueId x = net.Images({.channels = 1, .height = 28, .width = 28});
//   x = net.Conv2d("conv1", x, {.channels = 8});
//   x = net.Relu(net.BatchNorm("bn1", x));
//   x = net.Linear("head", net.GlobalAveragePool(x), 10);
//   Result<Model> model = net.Finish(x);
//
// What each layer computes stands in docs/ops/README.md.
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
  // A byte x becomes (x − mean) / stddev; all three are in units of 0 … 255.
  // One entry per channel, or one for all of them.
  std::vector<float> mean = {127.5f};
  std::vector<float> stddev = {127.5f};
};

struct ConvLayer {
  int64_t channels = 1;  // of the output
  int64_t kernel = 3;
  int64_t stride = 1;
  int64_t padding = 1;
};

struct LinearLayer {
  bool bias = true;    // which starts at 0
  float bound = 0.0f;  // weights start uniform in ±bound; 0: 1/sqrt(in)
};

struct PoolLayer {
  int64_t kernel = 2;
  int64_t stride = 2;
  int64_t padding = 0;
};

// Sentences of tokens, one after the other without a gap: sentence s is the
// tokens from ends[s − 1] (0 for the first) to ends[s], the last one excluded.
struct Text {
  ValueId tokens;  // i32 [tokens]
  ValueId ends;    // i32 [sentences]
};

// What an input of text has room for.
struct TextRoom {
  int64_t tokens = 0;     // 0: as many as the batch has units
  int64_t sentences = 0;  // 0: those of the other texts; else of its own
};

struct DynamicConvLayer {
  int64_t heads = 1;    // divide the features
  int64_t kernel = 3;   // taps; odd, unless it is causal
  bool causal = false;  // taps reach back only
  double dropout = 0;   // of taps, in training
};

struct AttentionLayer {
  int64_t heads = 1;    // divide the features
  bool causal = false;  // no key behind the query's place in its sentence
  double dropout = 0;   // of probabilities, in training
};

// The weights of an LSTM layer. All its steps share them.
struct LstmWeights {
  ValueId weight_x, weight_h, bias;
};

// What one step of an LSTM layer hands to the next. Before the first step both
// ids are invalid, which stands for zeros.
struct LstmState {
  ValueId h, c;
};

class Network {
 public:
  // `batch` is the most images, or other `units`, that a step may hold; it may
  // hold fewer. Rows of values are counted by them.
  Network(std::string name, int64_t batch, std::string units = "images");

  // The network's input: images as bytes. Returns them normalised, as f32. Call
  // it once, first.
  ValueId Images(const ImageLayer& layer);
  // The network's input, to be read as a sequence: each image's bytes, channel
  // by channel and row by row, are cut into `steps` parts of equal length.
  // Returns that length. Call it once, first, instead of Images.
  int64_t ImageSequence(const ImageLayer& layer, int64_t steps);
  // Part `step` (from 0) of every image, one row per image, normalised to f32.
  ValueId SequenceStep(int64_t step);

  // An input of text, whose tokens are the units of the batch: the feeds
  // "<name>" and "<name>_ends". Values made of it have a row for each token.
  // Texts have at most `sentences`, which the first one says; 0: as many as the
  // batch has units.
  Text TextInput(const std::string& name, int64_t sentences = 0);
  // The same with tokens "<name>_tokens" that are counted by themselves: the
  // text that is translated, say.
  Text OtherTextInput(const std::string& name, const TextRoom& room = {});
  // The tokens of `text` in groups of sentences, as many as `like` has
  // sentences: the feed "<name>_ends". Example: four translations of one
  // sentence are four sentences, and one group that attends to it.
  Text Grouped(const std::string& name, const Text& text, const Text& like);

  // In all layers below, parameters are named "<name>.weight" and so on. Names
  // must be unique and UTF-8, and so must the network's own.

  // A convolution without bias. Weights start normal with the variance of He et
  // al. by fan-out.
  ValueId Conv2d(const std::string& name, ValueId x, const ConvLayer& layer);
  ValueId Linear(const std::string& name, ValueId x, int64_t features,
                 const LinearLayer& layer);
  ValueId Linear(const std::string& name, ValueId x, int64_t features,
                 bool bias = true) {
    return Linear(name, x, features, LinearLayer{.bias = bias});
  }
  ValueId Bias(const std::string& name, ValueId x);
  ValueId BatchNorm(const std::string& name, ValueId x, float epsilon = 1e-5f,
                    float momentum = 0.1f);
  ValueId Relu(ValueId x);
  // In training, a share `rate` in [0, 1) of the values becomes 0 by chance,
  // and the others are scaled by 1 / (1 − rate). In evaluation, and with rate
  // 0, values stay as they are.
  ValueId Dropout(ValueId x, double rate);
  ValueId MaxPool(ValueId x, const PoolLayer& layer = {});
  ValueId AveragePool(ValueId x, const PoolLayer& layer = {});
  ValueId GlobalAveragePool(ValueId x);
  ValueId Add(ValueId a, ValueId b);
  // The identity across a change of shape: takes every stride-th row and column
  // of x, and adds channels of zeros up to `channels`.
  ValueId Shortcut(ValueId x, int64_t channels, int64_t stride);
  ValueId Flatten(ValueId x);

  // Weights start uniform in ±1/sqrt(hidden), the bias at 0.
  LstmWeights Lstm(const std::string& name, int64_t features, int64_t hidden);
  // One step on the rows of x. `before` is what the step before returned, or {}
  // for the first one.
  LstmState LstmStep(const std::string& name, ValueId x,
                     const LstmWeights& weights, const LstmState& before);

  // Of rows made of a text, that of each sentence's last token. For networks
  // that FinishOutputs ends.
  ValueId LastRows(ValueId x, const Text& text);
  // A row of weights [vocabulary, features] for each token of the text, times
  // sqrt(features), plus sines and cosines of its position in its sentence if
  // `positions` (then features are even, and 4 at least). Weights start normal
  // with the variance 1/features. Tokens must be in [0, vocabulary).
  ValueId Embedding(const std::string& name, const Text& text,
                    int64_t vocabulary, int64_t features,
                    bool positions = true);
  // Each row of x [N, C] by its own mean and variance, then times a weight and
  // plus a bias for each feature, which start at 1 and 0.
  ValueId LayerNorm(const std::string& name, ValueId x, float epsilon = 1e-5f);
  // Each token's features become a sum of those of the tokens around it in its
  // sentence, by `kernel` taps per head: softmaxes of `taps` [tokens, heads *
  // kernel], the first head's first.
  ValueId DynamicConv(const std::string& name, ValueId u, ValueId taps,
                      const Text& text, const DynamicConvLayer& layer);
  // Each token of `query_text`, of which q are rows, takes values v of the
  // tokens of `key_text` in the sentence of the same number: per head, by the
  // softmax of products of q and k, over the square root of a head's features.
  ValueId Attention(const std::string& name, ValueId q, ValueId k, ValueId v,
                    const Text& query_text, const Text& key_text,
                    const AttentionLayer& layer);

  // Ends the network: adds labels as an input and the softmax cross-entropy of
  // `logits` [N, classes] as the loss. Returns the model, or the first error.
  Result<Model> Finish(ValueId logits);
  // Ends a network of text instead: adds a label for each token as an input,
  // weights "<name>.weight" [vocabulary, C], normal with the variance 1/C, and
  // as the loss the cross-entropy of x wᵀ, of which a share `smoothing` goes to
  // all of the vocabulary alike.
  Result<Model> FinishText(const std::string& name, ValueId x,
                           int64_t vocabulary, double smoothing = 0.1);
  // The logits x wᵀ of rows x, f32 whatever activations are stored as, with the
  // weights of FinishText: for networks that FinishOutputs ends.
  ValueId TokenLogits(const std::string& name, ValueId x, int64_t vocabulary);
  // Ends a network without a loss, which can be evaluated only, with values to
  // be read.
  Result<Model> FinishOutputs(std::vector<End> outputs);

 private:
  ValueId AddLayer(const std::string& name, std::shared_ptr<const OpDef> def,
                   std::vector<ValueId> inputs);
  // All outputs; none after an error.
  std::vector<ValueId> AddOp(const std::string& name,
                             std::shared_ptr<const OpDef> def,
                             std::vector<ValueId> inputs);
  // Labels, the loss's op on them behind `inputs`, and what is learned: what
  // the op made, or the first error.
  Result<std::vector<ValueId>> AddLoss(std::shared_ptr<const OpDef> def,
                                       std::vector<ValueId> inputs);
  Text AddText(const std::string& name, AxisId tokens, AxisId sentences);
  ValueId AddFeed(const std::string& name, AxisId axis);
  // Whether there is room for this many more axes.
  bool HasAxes(const std::string& name, size_t more);
  bool CheckFeedName(const std::string& name);
  // Weights [vocabulary, C] that make logits of rows x [T, C].
  ValueId TokenWeights(const std::string& name, ValueId x, int64_t vocabulary);
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
  std::vector<End> feeds_;  // labels come last
  ValueId images_;
  int64_t batch_;
  AxisId sentences_;
  bool is_for_evaluation_ = false;
  // One per channel of the images: y = x * scale + shift.
  std::vector<float> image_scale_, image_shift_;
  int64_t sequence_steps_ = 0;
  int unnamed_ = 0;
  std::unordered_set<std::string> parameter_names_;
  Status status_;
};

}  // namespace thimble
