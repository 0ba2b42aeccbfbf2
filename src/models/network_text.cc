// SPDX-License-Identifier: Apache-2.0
//
// Layers of Network that read text.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <utility>

#include "graph/fingerprint.h"
#include "graph/op.h"
#include "models/extents.h"
#include "ops/embedding.h"
#include "ops/last_rows.h"
#include "ops/layer_norm.h"
#include "ops/linear.h"
#include "ops/projected_loss.h"
#include "thimble/network.h"

namespace thimble {

bool Network::CheckFeedName(const std::string& name) {
  if (!CheckName(name)) return false;
  for (const End& feed : feeds_) {
    if (feed.name != name) continue;
    Fail(fmt::format("two inputs are called '{}'; names must be unique", name));
    return false;
  }
  return true;
}

bool Network::HasAxes(const std::string& name, size_t more) {
  if (model_.graph.axes().size() + more <= kMaxAxes) return true;
  Fail(
      fmt::format("'{}': a network has at most {} axes, sentences and batch "
                  "included",
                  name, kMaxAxes));
  return false;
}

ValueId Network::AddFeed(const std::string& name, AxisId axis) {
  const int64_t room = model_.graph.axes()[axis.index()].capacity;
  const ValueId value =
      model_.graph.AddValue(name, {{room}, DType::kI32, axis}, Role::kInput);
  feeds_.push_back({name, value});
  return value;
}

Text Network::AddText(const std::string& name, AxisId tokens,
                      AxisId sentences) {
  const ValueId value = AddFeed(name, tokens);
  return {value, AddFeed(name + "_ends", sentences)};
}

Text Network::TextInput(const std::string& name, int64_t sentences) {
  if (!status_.ok() || !CheckFeedName(name)) return {};
  if (sentences < 0 || sentences > batch_) {
    Fail(fmt::format("'{}': of {} tokens there are 1 to {} sentences, got {}",
                     name, batch_, batch_, sentences));
    return {};
  }
  // A sentence has a token at least.
  if (!sentences_.valid()) {
    sentences_ =
        model_.graph.AddAxis("sentences", sentences > 0 ? sentences : batch_);
  }
  return AddText(name, kBatchAxis, sentences_);
}

Text Network::OtherTextInput(const std::string& name, const TextRoom& room) {
  if (!status_.ok() || !CheckFeedName(name)) return {};
  const int64_t tokens = room.tokens > 0 ? room.tokens : batch_;
  if (!InRange(tokens) || room.tokens < 0 || room.sentences < 0 ||
      room.sentences > tokens) {
    Fail(fmt::format("'{}': there is no room for {} tokens in {} sentences",
                     name, room.tokens, room.sentences));
    return {};
  }
  const bool makes_sentences = room.sentences > 0 || !sentences_.valid();
  if (!HasAxes(name, makes_sentences ? 2 : 1)) return {};
  AxisId sentences = sentences_;
  if (room.sentences > 0) {
    sentences = model_.graph.AddAxis(name + "_sentences", room.sentences);
  } else if (!sentences_.valid()) {
    sentences = sentences_ = model_.graph.AddAxis("sentences", batch_);
  }
  return AddText(name, model_.graph.AddAxis(name + "_tokens", tokens),
                 sentences);
}

Text Network::Grouped(const std::string& name, const Text& text,
                      const Text& like) {
  if (!Usable(text.tokens) || !Usable(like.ends) || !CheckFeedName(name)) {
    return {};
  }
  return {text.tokens,
          AddFeed(name + "_ends", model_.graph.value(like.ends).spec.axis)};
}

ValueId Network::Embedding(const std::string& name, const Text& text,
                           int64_t vocabulary, int64_t features,
                           bool positions) {
  if (!Usable(text.tokens)) return {};
  const float root = std::sqrt(static_cast<float>(features));
  const ValueId weight = Parameter(name + ".weight", {vocabulary, features},
                                   {Init::Kind::kNormal, 1.0f / root});
  std::vector<ValueId> inputs = {text.tokens, weight};
  if (positions) inputs.push_back(text.ends);
  return AddLayer(name, std::make_shared<ops::Embedding>(root, positions),
                  std::move(inputs));
}

ValueId Network::LayerNorm(const std::string& name, ValueId x, float epsilon) {
  if (!Usable(x)) return {};
  const Shape shape = model_.graph.value(x).spec.shape;
  if (shape.rank() != 2) {
    Fail(fmt::format("layer-norm '{}': needs rows [N, C], got {}", name,
                     shape.ToString()));
    return {};
  }
  const Shape features{shape[1]};
  const ValueId gamma =
      Parameter(name + ".weight", features, {Init::Kind::kConstant, 1.0f});
  const ValueId beta =
      Parameter(name + ".bias", features, {Init::Kind::kConstant, 0.0f});
  return AddLayer(name, std::make_shared<ops::LayerNorm>(epsilon),
                  {x, gamma, beta});
}

ValueId Network::LastRows(ValueId x, const Text& text) {
  is_for_evaluation_ = true;
  return AddLayer(Unnamed("last_rows"), std::make_shared<ops::LastRows>(),
                  {x, text.ends});
}

Result<Model> Network::FinishOutputs(std::vector<End> outputs) {
  for (const End& output : outputs) {
    if (!Usable(output.value)) return status_;
  }
  if (!status_.ok()) return status_;
  if (outputs.empty()) return Status::Usage("a network needs an output");
  model_.ends = {.feeds = feeds_, .outputs = std::move(outputs)};
  model_.fingerprint = Fingerprint(model_.graph);
  return std::move(model_);
}

ValueId Network::TokenWeights(const std::string& name, ValueId x,
                              int64_t vocabulary) {
  if (!Usable(x)) return {};
  const Shape shape = model_.graph.value(x).spec.shape;
  if (shape.rank() != 2) {
    Fail(
        fmt::format("'{}': needs rows [T, C], got {}", name, shape.ToString()));
    return {};
  }
  const float deviation = 1.0f / std::sqrt(static_cast<float>(shape[1]));
  return Parameter(name + ".weight", {vocabulary, shape[1]},
                   {Init::Kind::kNormal, deviation});
}

ValueId Network::TokenLogits(const std::string& name, ValueId x,
                             int64_t vocabulary) {
  is_for_evaluation_ = true;
  const ValueId weight = TokenWeights(name, x, vocabulary);
  if (!status_.ok()) return {};
  return AddLayer(name, std::make_shared<ops::Linear>(/*stays_f32=*/true),
                  {x, weight});
}

Result<Model> Network::FinishText(const std::string& name, ValueId x,
                                  int64_t vocabulary, double smoothing) {
  const ValueId weight = TokenWeights(name, x, vocabulary);
  if (!status_.ok()) return status_;
  auto made = AddLoss(std::make_shared<ops::ProjectedCrossEntropy>(smoothing),
                      {x, weight});
  if (!made.ok()) return made.status();
  model_.ends = {.feeds = feeds_,
                 .outputs = {},
                 .loss = (*made)[0],
                 .metrics = {{"nll", (*made)[1]}, {"accuracy", (*made)[2]}}};
  model_.fingerprint = Fingerprint(model_.graph);
  return std::move(model_);
}

}  // namespace thimble
