// SPDX-License-Identifier: Apache-2.0
#include "models/dynamic_conv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "models/extents.h"
#include "thimble/number.h"

namespace thimble::models {
namespace {

constexpr std::string_view kDynamicConvPrefix = "dynamicconv-";
constexpr int64_t kHeads = 4;
constexpr int64_t kMostFeatures = 1 << 14;
constexpr int64_t kMostLayers = 64;
// Of the first layers; the last one is that of all others.
constexpr int64_t kKernels[] = {3, 7, 15, 31};
constexpr double kSmoothing = 0.1;

int64_t KernelOf(int64_t layer) {
  constexpr auto kLast = static_cast<int64_t>(std::size(kKernels)) - 1;
  return kKernels[std::min(layer, kLast)];
}

// The bound of Glorot and Bengio's uniform weights.
float Xavier(int64_t in, int64_t out) {
  return std::sqrt(6.0f / static_cast<float>(in + out));
}

class Builder {
 public:
  Builder(const std::string& name, const DynamicConvModel& shape,
          const ModelOptions& options)
      : shape_(shape), options_(options), net_(name, options.batch, "tokens") {}

  Result<Model> Build() {
    const Text target = net_.TextInput("target");
    const Text source = net_.OtherTextInput("source");
    const ValueId read = Encode(source);
    const ValueId x = Decode(target, target, read, source);
    auto model =
        net_.FinishText("output", x, options_.target_vocabulary, kSmoothing);
    if (model.ok()) model->sparse_weights = SparseByDefault();
    return model;
  }

  Result<Model> BuildTranslator(const TranslatorRoom& room) {
    const Text target = net_.TextInput("target", room.hypotheses);
    const Text source = net_.OtherTextInput(
        "source", {.tokens = room.source_tokens, .sentences = room.sentences});
    const Text of_source = net_.Grouped("target_of_source", target, source);
    const ValueId read = Encode(source);
    const ValueId x = Decode(target, of_source, read, source);
    const ValueId logits = net_.TokenLogits("output", net_.LastRows(x, target),
                                            options_.target_vocabulary);
    auto model = net_.FinishOutputs({{"read", read}, {"logits", logits}});
    if (model.ok()) model->sparse_weights = SparseByDefault();
    return model;
  }

 private:
  // Softmaxes drop a third of what other dropouts do.
  double inner_dropout() const { return options_.dropout.value_or(0) / 3; }

  ValueId Linear(const std::string& name, ValueId x, int64_t in, int64_t out) {
    return net_.Linear(name, x, out, {.bound = Xavier(in, out)});
  }
  ValueId Drop(ValueId x) {
    return net_.Dropout(x, options_.dropout.value_or(0));
  }
  ValueId AddAndNorm(const std::string& name, ValueId x, ValueId made) {
    return net_.LayerNorm(name + ".norm", net_.Add(x, Drop(made)));
  }

  ValueId Embed(const std::string& name, const Text& text, int64_t vocabulary) {
    return Drop(
        net_.Embedding(name + ".embedding", text, vocabulary, shape_.features));
  }

  ValueId Encode(const Text& source) {
    ValueId x = Embed("encoder", source, options_.source_vocabulary);
    for (int64_t i = 0; i < shape_.encoder_layers; ++i) {
      const std::string name = fmt::format("encoder.layer{}", i + 1);
      x = Convolve(name + ".conv", x, source, KernelOf(i), /*causal=*/false);
      x = Feed(name, x);
    }
    return x;
  }

  // `of_source` is the target in as many sentences as the source has, of which
  // `read` was made.
  ValueId Decode(const Text& target, const Text& of_source, ValueId read,
                 const Text& source) {
    ValueId x = Embed("decoder", target, options_.target_vocabulary);
    for (int64_t i = 0; i < shape_.decoder_layers; ++i) {
      const std::string name = fmt::format("decoder.layer{}", i + 1);
      x = Convolve(name + ".conv", x, target, KernelOf(i), /*causal=*/true);
      x = Attend(name + ".attention", x, of_source, read, source);
      x = Feed(name, x);
    }
    return x;
  }

  ValueId Convolve(const std::string& name, ValueId x, const Text& text,
                   int64_t kernel, bool causal) {
    const int64_t c = shape_.features;
    const ValueId u = Linear(name + ".in", x, c, c);
    const ValueId taps = net_.Linear(
        name + ".taps", u, kHeads * kernel,
        {.bias = false, .bound = 1.0f / std::sqrt(static_cast<float>(c))});
    const ValueId v = net_.DynamicConv(name, u, taps, text,
                                       {.heads = kHeads,
                                        .kernel = kernel,
                                        .causal = causal,
                                        .dropout = inner_dropout()});
    return AddAndNorm(name, x, Linear(name + ".out", v, c, c));
  }

  // Queries, keys and values are weights of their own here, initialised as the
  // three parts of one matrix are.
  ValueId Attend(const std::string& name, ValueId x, const Text& target,
                 ValueId read, const Text& source) {
    const int64_t c = shape_.features;
    const LinearLayer part = {.bound = Xavier(c, 3 * c)};
    const ValueId q = net_.Linear(name + ".query", x, c, part);
    const ValueId k = net_.Linear(name + ".key", read, c, part);
    const ValueId v = net_.Linear(name + ".value", read, c, part);
    const ValueId made =
        net_.Attention(name, q, k, v, target, source,
                       {.heads = kHeads, .dropout = inner_dropout()});
    return AddAndNorm(name, x, Linear(name + ".out", made, c, c));
  }

  ValueId Feed(const std::string& layer, ValueId x) {
    const std::string name = layer + ".feed";
    const ValueId hidden =
        net_.Relu(Linear(name + ".in", x, shape_.features, shape_.hidden));
    return AddAndNorm(
        name, x, Linear(name + ".out", hidden, shape_.hidden, shape_.features));
  }

  // All but taps, as the paper has it: what has two dimensions otherwise.
  static std::vector<std::string> SparseByDefault() {
    return {"*.embedding.weight", "*.in.weight",  "*.out.weight",
            "*.query.weight",     "*.key.weight", "*.value.weight",
            "output.weight"};
  }

  const DynamicConvModel& shape_;
  const ModelOptions& options_;
  Network net_;
};

}  // namespace

Result<std::optional<DynamicConvModel>> ParseDynamicConvName(
    const std::string& name) {
  if (!name.starts_with(kDynamicConvPrefix))
    return std::optional<DynamicConvModel>();
  std::string_view text =
      std::string_view(name).substr(kDynamicConvPrefix.size());
  DynamicConvModel shape;
  if (text == "iwslt") return std::optional(shape);
  int64_t* const numbers[] = {&shape.features, &shape.hidden,
                              &shape.encoder_layers, &shape.decoder_layers};
  bool is_good = std::ranges::count(text, '-') == 3;
  for (int64_t* number : numbers) {
    const size_t dash = std::min(text.find('-'), text.size());
    const auto parsed = ParseWhole(text.substr(0, dash));
    text.remove_prefix(std::min(dash + 1, text.size()));
    const bool fits =
        parsed.value_or(0) >= 1 &&
        *parsed <= static_cast<uint64_t>(number == &shape.features ||
                                                 number == &shape.hidden
                                             ? kMostFeatures
                                             : kMostLayers);
    is_good = is_good && fits;
    if (fits) *number = static_cast<int64_t>(*parsed);
  }
  if (is_good && shape.features % (2 * kHeads) == 0) {
    return std::optional(shape);
  }
  return Status::Usage(fmt::format(
      "'{}' is no translation model; use dynamicconv-iwslt, or dynamicconv-D-"
      "FFN-ENC-DEC with D and FFN up to {}, D a multiple of {}, and up to {} "
      "layers each, e.g. dynamicconv-256-512-4-2",
      name, kMostFeatures, 2 * kHeads, kMostLayers));
}

Result<Model> BuildDynamicConv(const std::string& name,
                               const DynamicConvModel& shape,
                               const ModelOptions& options) {
  return Builder(name, shape, options).Build();
}

Result<Model> BuildDynamicConvTranslator(const std::string& name,
                                         const DynamicConvModel& shape,
                                         const ModelOptions& options,
                                         const TranslatorRoom& room) {
  return Builder(name, shape, options).BuildTranslator(room);
}

TrainingPreset DynamicConvPreset() {
  TrainingPreset preset;
  preset.is_of_text = true;
  preset.batch = 4000;
  preset.optimizer = "adamw";
  preset.beta2 = 0.98;
  preset.weight_decay = 1e-4;
  preset.learning_rate = 5e-4;
  preset.schedule = "inverse-sqrt";
  preset.epochs = 45;
  preset.warmup_steps = 4000;
  return preset;
}

}  // namespace thimble::models
