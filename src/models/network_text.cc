// SPDX-License-Identifier: Apache-2.0
//
// Layers of Network that read text.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <utility>

#include "graph/fingerprint.h"
#include "graph/op.h"
#include "ops/embedding.h"
#include "ops/last_rows.h"
#include "ops/layer_norm.h"
#include "ops/projected_loss.h"
#include "thimble/network.h"

namespace thimble {

Text Network::AddText(const std::string& name, AxisId tokens) {
  if (!CheckName(name)) return {};
  for (const End& feed : feeds_) {
    if (feed.name != name) continue;
    Fail(fmt::format("two inputs are called '{}'; names must be unique", name));
    return {};
  }
  // A sentence has a token at least.
  if (!sentences_.valid()) {
    sentences_ = model_.graph.AddAxis("sentences", batch_);
  }
  const auto feed = [&](const std::string& named, AxisId axis) {
    const ValueId value = model_.graph.AddValue(
        named, {{batch_}, DType::kI32, axis}, Role::kInput);
    feeds_.push_back({named, value});
    return value;
  };
  return {feed(name, tokens), feed(name + "_ends", sentences_)};
}

Text Network::TextInput(const std::string& name) {
  if (!status_.ok()) return {};
  return AddText(name, kBatchAxis);
}

Text Network::OtherTextInput(const std::string& name) {
  if (!status_.ok()) return {};
  const size_t more = sentences_.valid() ? 1 : 2;
  if (model_.graph.axes().size() + more > kMaxAxes) {
    Fail(fmt::format(
        "'{}': a network has at most {} axes, sentences and batch included",
        name, kMaxAxes));
    return {};
  }
  return AddText(name, model_.graph.AddAxis(name + "_tokens", batch_));
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

Result<Model> Network::FinishText(const std::string& name, ValueId x,
                                  int64_t vocabulary, double smoothing) {
  if (!Usable(x)) return status_;
  const Shape shape = model_.graph.value(x).spec.shape;
  if (shape.rank() != 2) {
    return Status::Usage(
        fmt::format("'{}': needs rows [T, C], got {}", name, shape.ToString()));
  }
  const float deviation = 1.0f / std::sqrt(static_cast<float>(shape[1]));
  const ValueId weight = Parameter(name + ".weight", {vocabulary, shape[1]},
                                   {Init::Kind::kNormal, deviation});
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
