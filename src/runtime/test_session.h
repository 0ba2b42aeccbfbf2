// SPDX-License-Identifier: Apache-2.0
//
// For tests only: sessions on a network that is small enough to look at every
// byte of. Built op by op, since networks are not this module's to know. One
// thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/batch_norm.h"
#include "ops/bias.h"
#include "ops/bound_op.h"
#include "ops/dropout.h"
#include "ops/linear.h"
#include "ops/normalize.h"
#include "ops/reshape.h"
#include "ops/softmax_cross_entropy.h"
#include "thimble/plan.h"
#include "thimble/session.h"

namespace thimble::runtime::testing {

inline constexpr int64_t kBatch = 4;
inline constexpr int64_t kPixels = 4;
inline constexpr int64_t kClasses = 3;

// Passes its input on; when it is told to, with an infinity as its first value.
class Spike final : public OpDef {
 public:
  explicit Spike(const bool* is_on) : is_on_(is_on) {}
  std::string_view name() const override { return "spike"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override {
    return std::vector<ValueSpec>{inputs[0]};
  }
  void Gradient(GradientContext& context) const override {
    context.grad_inputs[0] = context.grad_outputs[0];
  }
  void Run(const BoundOp& op, const RunContext&) const override {
    std::memcpy(op.Out(0).data(), op.In(0).data(), op.out_spec(0).bytes());
    const uint16_t infinity =
        op.out_spec(0).storage == DType::kF16 ? 0x7C00 : 0x7F80;
    if (*is_on_) std::memcpy(op.Out(0).data(), &infinity, 2);
  }

 private:
  const bool* is_on_;
};

struct Layers {
  bool batch_norm = true;
  bool dropout = false;
  const bool* spike = nullptr;  // one in 16 bits, see Spike
};

// 2 x 2 grey pixels -> linear [-> spike] [-> batch norm] [-> dropout] -> bias
// -> loss.
inline Model TinyModel(const Layers& layers) {
  Model model;
  model.name = "tiny";
  Graph& g = model.graph;
  g.AddAxis("images", kBatch);
  const auto op = [&](const char* name, std::shared_ptr<const OpDef> def,
                      const std::vector<ValueId>& inputs) {
    return *g.AddOp(name, std::move(def), inputs);
  };
  const auto per_class = [&](const char* name, Role role, float value) {
    return g.AddValue(name, {{kClasses}, DType::kF32}, role,
                      {Init::Kind::kConstant, value});
  };
  const ValueId images = g.AddValue(
      "images", {{kBatch, 1, 2, 2}, DType::kU8, kBatchAxis}, Role::kInput);
  const ValueId labels =
      g.AddValue("labels", {{kBatch}, DType::kI32, kBatchAxis}, Role::kInput);
  const std::vector<float> scale = {1 / 64.0f};
  const std::vector<float> shift = {-2.0f};
  ValueId x = op("normalize", std::make_shared<ops::Normalize>(scale, shift),
                 {images})[0];
  x = op("flatten", std::make_shared<ops::Flatten>(), {x})[0];
  const ValueId w = g.AddValue("fc.weight", {{kClasses, kPixels}, DType::kF32},
                               Role::kParameter, {Init::Kind::kUniform, 0.5f});
  x = op("fc", std::make_shared<ops::Linear>(), {x, w})[0];
  if (layers.spike != nullptr) {
    x = op("spike", std::make_shared<Spike>(layers.spike), {x})[0];
  }
  if (layers.batch_norm) {
    const ValueId gamma = per_class("bn.weight", Role::kParameter, 1.0f);
    const ValueId beta = per_class("bn.bias", Role::kParameter, 0.0f);
    const ValueId mean = per_class("bn.running_mean", Role::kStatistic, 0.0f);
    const ValueId var = per_class("bn.running_var", Role::kStatistic, 1.0f);
    x = op("bn", std::make_shared<ops::BatchNorm>(ops::BatchNormAttributes{}),
           {x, gamma, beta, mean, var})[0];
  }
  if (layers.dropout) {
    x = op("dropout", std::make_shared<ops::Dropout>(0.5, 0), {x})[0];
  }
  const ValueId b = per_class("fc.bias", Role::kParameter, 0.25f);
  const ValueId logits = op("bias", std::make_shared<ops::Bias>(), {x, b})[0];
  const auto ends = op("loss", std::make_shared<ops::SoftmaxCrossEntropy>(),
                       {logits, labels});
  model.ends = {.feeds = {{"images", images}, {"labels", labels}},
                .outputs = {{"logits", logits}},
                .loss = ends[0],
                .metrics = {{"accuracy", ends[1]}}};
  return model;
}

// A session on a tiny model, and what tests read of it.
class TinySession {
 public:
  explicit TinySession(const Layers& layers, PlanOptions options = {},
                       const SessionOptions& how = {}) {
    auto plan = MakePlan(TinyModel(layers), options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    plan_ = std::make_unique<Plan>(*std::move(plan));
    auto session = Session::Create(*plan_, how);
    EXPECT_TRUE(session.ok()) << session.status().message();
    session_ = *std::move(session);
  }

  const Plan& plan() const { return *plan_; }
  Session& operator*() { return *session_; }
  Session* operator->() { return session_.get(); }

  // Rows first, first + 1, …: the same ones for training and for evaluation.
  void Feed(int64_t first = 0) {
    Fill(session_->TrainFeed<uint8_t>("images"),
         session_->TrainFeed<int32_t>("labels"), first);
  }
  void FeedEvaluation() {
    Fill(session_->EvaluateFeed<uint8_t>("images"),
         session_->EvaluateFeed<int32_t>("labels"), 0);
  }

  // Bytes of parameters, statistics and the optimizer's state.
  std::string State() {
    std::string bytes;
    for (const ParameterState& p : plan_->parameters()) {
      bytes += BytesOf(p.parameter);
      for (ValueId v : p.state) bytes += BytesOf(v);
    }
    for (ValueId v : plan_->statistics()) bytes += BytesOf(v);
    return bytes;
  }
  std::string Gradients() {
    std::string bytes;
    for (const ParameterState& p : plan_->parameters()) {
      bytes += BytesOf(p.gradient);
    }
    return bytes;
  }
  std::vector<float> GradientsAsFloats() {
    std::vector<float> floats;
    for (const ParameterState& p : plan_->parameters()) {
      const auto of = session_->Floats(p.gradient);
      floats.insert(floats.end(), of.begin(), of.end());
    }
    return floats;
  }
  std::string BytesOf(ValueId v) {
    const auto bytes = session_->Bytes(v);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  static void Fill(std::span<uint8_t> images, std::span<int32_t> labels,
                   int64_t first) {
    for (size_t i = 0; i < images.size(); ++i) {
      const size_t at = static_cast<size_t>(first * kPixels) + i;
      images[i] = static_cast<uint8_t>(73 * at + 11 * (at / 5));
    }
    for (size_t i = 0; i < labels.size(); ++i) {
      labels[i] = static_cast<int32_t>((static_cast<size_t>(first) + i) %
                                       static_cast<size_t>(kClasses));
    }
  }

  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Session> session_;
};

}  // namespace thimble::runtime::testing
