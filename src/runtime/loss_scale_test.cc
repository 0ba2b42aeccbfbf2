// SPDX-License-Identifier: Apache-2.0
//
// Steps whose gradients are not finite: nothing of them is applied.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/test_session.h"

namespace thimble::runtime::testing {
namespace {

constexpr DType kStored[] = {DType::kF16, DType::kBF16};

PlanOptions InParts(DType dtype, int64_t microbatch) {
  return {.precision = Precision::All(dtype), .microbatch = microbatch};
}

// A step of four microbatches of one image; a spike in the third, or in none.
StepOutcome StepInParts(TinySession& tiny, bool* spike, bool with_spike) {
  for (int64_t first = 0; first < kBatch; ++first) {
    tiny.Feed(first);
    *spike = with_spike && first == 2;
    tiny->Differentiate({.first = first, .count = 1, .total = kBatch});
  }
  *spike = false;
  return tiny->Update(0.1f);
}

TEST(LossScaling, AnInfinityInAForwardActivationOfTheThirdPartChangesNothing) {
  for (const DType dtype : kStored) {
    SCOPED_TRACE(DTypeName(dtype));
    bool spike = false;
    TinySession tiny({.batch_norm = false, .spike = &spike}, InParts(dtype, 1));
    tiny->Initialize(1);
    tiny->ScaleLoss(1024.0f);
    EXPECT_EQ(StepInParts(tiny, &spike, false), StepOutcome::kApplied);
    const std::string before = tiny.State();
    EXPECT_EQ(StepInParts(tiny, &spike, true), StepOutcome::kSkipped);
    EXPECT_EQ(tiny.State(), before);
    // And the next step knows nothing of it.
    EXPECT_EQ(StepInParts(tiny, &spike, false), StepOutcome::kApplied);
    EXPECT_NE(tiny.State(), before);
  }
}

TEST(LossScaling, RunningStatisticsStayAsTheyWere) {
  bool spike = false;
  TinySession tiny({.spike = &spike}, InParts(DType::kF16, 2));
  tiny->Initialize(1);
  tiny->ScaleLoss(8.0f);
  const std::string before = tiny.State();
  for (int64_t first = 0; first < kBatch; first += 2) {
    tiny.Feed(first);
    spike = first == 2;
    tiny->Differentiate({.first = first, .count = 2, .total = kBatch});
  }
  EXPECT_EQ(tiny->Update(0.1f), StepOutcome::kSkipped);
  EXPECT_EQ(tiny.State(), before);
}

TEST(LossScaling, AnOverflowInAGradientIsSeenThoughTheLossIsFinite) {
  TinySession tiny({.batch_norm = false}, InParts(DType::kF16, 0));
  tiny->Initialize(1);
  tiny.Feed();
  const std::string before = tiny.State();
  tiny->ScaleLoss(0x1p24f);  // more than f16 holds
  const PassResult result = tiny->Differentiate(kBatch);
  EXPECT_LT(result.loss, 10.0f);
  EXPECT_EQ(tiny->Update(0.1f), StepOutcome::kSkipped);
  EXPECT_EQ(tiny.State(), before);
}

// Adam divides by how much of its moments there is, which a skipped step does
// not change.
TEST(LossScaling, SkippedStepsAreNoneOfAdams) {
  PlanOptions options;
  options.optimizer = Adam({});
  std::string states[3];
  for (const uint64_t skipped : {0, 1, 2}) {
    TinySession tiny({.batch_norm = false}, options);
    tiny->Initialize(1);
    tiny->ScaleLoss(1.0f);
    // Skipped here, or, of a run that is resumed, before.
    if (skipped == 1) {
      EXPECT_EQ(tiny->Skip(), StepOutcome::kSkipped);
    } else if (skipped == 2) {
      tiny->GoOnAfter(1, 5, 5);
    }
    tiny.Feed();
    tiny->TrainStep(kBatch, 0.1f);
    states[skipped] = tiny.State();
  }
  EXPECT_EQ(states[1], states[0]);
  EXPECT_EQ(states[2], states[0]);
}

// Bytes in blocks hold no infinity; it is found none the less.
TEST(LossScaling, AnInfinityIsSeenThroughGradientsInBlocks) {
  bool spike = false;
  PlanOptions options = InParts(DType::kF16, 1);
  options.precision.gradients = U8InBlocks();
  TinySession tiny({.batch_norm = false, .spike = &spike}, options);
  tiny->Initialize(1);
  tiny->ScaleLoss(1024.0f);
  EXPECT_EQ(StepInParts(tiny, &spike, false), StepOutcome::kApplied);
  const std::string before = tiny.State();
  EXPECT_EQ(StepInParts(tiny, &spike, true), StepOutcome::kSkipped);
  EXPECT_EQ(tiny.State(), before);
  EXPECT_EQ(StepInParts(tiny, &spike, false), StepOutcome::kApplied);
}

// Without gradients of weights, what parts before the third one gave is in the
// velocity; what comes from the third one on is not, and no parameter is
// changed.
TEST(LossScaling, WithoutGradientsOnlyVelocitiesOfASkippedStepDiffer) {
  bool spike = false;
  PlanOptions options = InParts(DType::kF16, 1);
  options.precision.keeps_gradients = false;
  TinySession tiny({.batch_norm = false, .spike = &spike}, options);
  tiny->Initialize(1);
  tiny->ScaleLoss(1024.0f);
  EXPECT_EQ(StepInParts(tiny, &spike, false), StepOutcome::kApplied);
  const auto bytes_of = [&](bool parameters) {
    std::string bytes;
    for (const ParameterState& p : tiny.plan().parameters()) {
      bytes += tiny.BytesOf(parameters ? p.parameter : p.state[0]);
    }
    return bytes;
  };
  const std::string weights = bytes_of(true), velocities = bytes_of(false);
  for (int64_t first = 0; first < 2; ++first) {
    tiny.Feed(first);
    tiny->Differentiate({.first = first, .count = 1, .total = kBatch});
  }
  const std::string after_two = bytes_of(false);
  EXPECT_NE(after_two, velocities);
  for (int64_t first = 2; first < kBatch; ++first) {
    tiny.Feed(first);
    spike = first == 2;
    tiny->Differentiate({.first = first, .count = 1, .total = kBatch});
  }
  spike = false;
  EXPECT_EQ(tiny->Update(0.1f), StepOutcome::kSkipped);
  EXPECT_EQ(bytes_of(true), weights);
  EXPECT_EQ(bytes_of(false), after_two);
}

// With one part, an activation's gradient tells before anything is changed.
TEST(LossScaling, WithoutGradientsAnInfinityBehindAWeightLeavesItAlone) {
  for (const bool nesterov : {false, true}) {
    bool spike = false;
    PlanOptions options = InParts(DType::kF16, 0);
    options.precision.keeps_gradients = false;
    options.optimizer = Sgd({.nesterov = nesterov});
    TinySession tiny({.batch_norm = false, .spike = &spike}, options);
    EXPECT_EQ(tiny.plan().UpdatesInBackward(), nesterov);
    tiny->Initialize(1);
    tiny->ScaleLoss(1024.0f);
    tiny.Feed();
    const std::string before = tiny.State();
    tiny->BeginStep(0.1f, 0.1f);
    spike = true;
    tiny->Differentiate(kBatch);
    EXPECT_EQ(tiny->Update(0.1f), StepOutcome::kSkipped);
    EXPECT_EQ(tiny.State(), before);
    spike = false;
    tiny->TrainStep(kBatch, 0.1f);
    EXPECT_NE(tiny.State(), before);
  }
}

// Passes its input on; when it is told to, its gradient's first value, that of
// the first image's first feature, is infinite.
class GradSpike final : public OpDef {
 public:
  GradSpike(const bool* is_on, bool is_gradient)
      : is_on_(is_on), is_gradient_(is_gradient) {}
  std::string_view name() const override { return "grad-spike"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override {
    return std::vector<ValueSpec>{inputs[0]};
  }
  void Gradient(GradientContext& context) const override {
    context.grad_inputs[0] = context.emit.Emit(
        context.name + ".grad_x", std::make_shared<GradSpike>(is_on_, true),
        {context.grad_outputs[0]}, Role::kActivationGradient)[0];
  }
  void Run(const BoundOp& op, const RunContext&) const override {
    std::memcpy(op.Out(0).data(), op.In(0).data(), op.out_spec(0).bytes());
    if (is_gradient_ && *is_on_) op.Out(0).f32()[0] = HUGE_VALF;
  }

 private:
  const bool* is_on_;
  bool is_gradient_;
};

// 2 x 2 grey pixels -> linear to 80 features -> spike -> linear -> loss. The
// gradient of the first weight comes in several pieces, of which only the first
// meets the spike.
Model SpikedModel(const bool* spike) {
  Model model;
  model.name = "spiked";
  Graph& g = model.graph;
  g.AddAxis("images", kBatch);
  const auto op = [&](const char* name, std::shared_ptr<const OpDef> def,
                      const std::vector<ValueId>& inputs) {
    return *g.AddOp(name, std::move(def), inputs);
  };
  const auto weight = [&](const char* name, const Shape& shape) {
    return g.AddValue(name, {shape, DType::kF32}, Role::kParameter,
                      {Init::Kind::kUniform, 0.5f});
  };
  const ValueId images = g.AddValue(
      "images", {{kBatch, 1, 2, 2}, DType::kU8, kBatchAxis}, Role::kInput);
  const ValueId labels =
      g.AddValue("labels", {{kBatch}, DType::kI32, kBatchAxis}, Role::kInput);
  const std::vector<float> scale = {1 / 64.0f}, shift = {-2.0f};
  ValueId x = op("normalize", std::make_shared<ops::Normalize>(scale, shift),
                 {images})[0];
  x = op("flatten", std::make_shared<ops::Flatten>(), {x})[0];
  const auto linear = std::make_shared<ops::Linear>();
  x = op("fc1", linear, {x, weight("fc1.weight", {80, kPixels})})[0];
  x = op("spike", std::make_shared<GradSpike>(spike, false), {x})[0];
  x = op("fc2", linear, {x, weight("fc2.weight", {kClasses, 80})})[0];
  const auto ends =
      op("loss", std::make_shared<ops::SoftmaxCrossEntropy>(), {x, labels});
  model.ends = {.feeds = {{"images", images}, {"labels", labels}},
                .outputs = {{"logits", x}},
                .loss = ends[0],
                .metrics = {{"accuracy", ends[1]}}};
  return model;
}

// Where the gradient of an activation is not finite, nothing is folded of any
// weight before it, though most of the sums would be finite.
TEST(LossScaling, WithoutGradientsThoseOfActivationsAreLookedAt) {
  bool spike = false;
  PlanOptions options;
  options.precision.keeps_gradients = false;
  const auto plan = MakePlan(SpikedModel(&spike), options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const auto session = Session::Create(*plan, {});
  ASSERT_TRUE(session.ok());
  Session& s = **session;
  s.Initialize(1);
  s.ScaleLoss(2.0f);
  std::ranges::fill(s.TrainFeed<uint8_t>("images"), uint8_t{200});
  std::ranges::fill(s.TrainFeed<int32_t>("labels"), 1);
  const auto velocity = [&](size_t parameter) {
    const auto of = s.Floats(plan->parameters()[parameter].state[0]);
    return std::vector<float>(of.begin(), of.end());
  };
  const std::vector<float> first = velocity(0), second = velocity(1);
  spike = true;
  s.Differentiate(kBatch);
  EXPECT_EQ(s.Update(0.1f), StepOutcome::kSkipped);
  EXPECT_EQ(velocity(0), first);
  EXPECT_NE(velocity(1), second);  // it stands behind the spike
  spike = false;
  s.TrainStep(kBatch, 0.1f);
  EXPECT_NE(velocity(0), first);
}

// A power of two is taken out again exactly, where nothing overflows or
// vanishes.
TEST(LossScaling, DoesNotChangeABitOfF32AndBf16) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    std::string states[2];
    for (int scaled = 0; scaled < 2; ++scaled) {
      TinySession tiny({}, {.precision = Precision::All(dtype)});
      tiny->Initialize(1);
      if (scaled == 1) tiny->ScaleLoss(4096.0f);
      for (int step = 0; step < 5; ++step) {
        tiny.Feed(step);
        tiny->TrainStep(kBatch, 0.1f);
      }
      states[scaled] = tiny.State();
    }
    EXPECT_EQ(states[0], states[1]) << DTypeName(dtype);
  }
}

TEST(LossScaling, WithoutItNothingIsSkipped) {
  bool spike = false;
  TinySession tiny({.batch_norm = false, .spike = &spike},
                   InParts(DType::kBF16, 0));
  tiny->Initialize(1);
  tiny.Feed();
  spike = true;
  tiny->Differentiate(kBatch);
  EXPECT_EQ(tiny->Update(0.1f), StepOutcome::kApplied);
}

TEST(LossScaling, SkipLeavesTheStateAndGoesOn) {
  TinySession tiny({.dropout = true});
  tiny->Initialize(1);
  const std::string before = tiny.State();
  tiny.Feed();
  tiny->Differentiate(kBatch);
  const std::string gradients = tiny.Gradients();
  EXPECT_EQ(tiny->Skip(), StepOutcome::kSkipped);
  EXPECT_EQ(tiny.State(), before);
  // Other masks: the step's number has gone on.
  tiny->Differentiate(kBatch);
  EXPECT_NE(tiny.Gradients(), gradients);
}

}  // namespace
}  // namespace thimble::runtime::testing
