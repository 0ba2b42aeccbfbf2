// SPDX-License-Identifier: Apache-2.0
//
// Networks whose weights' gradients are in blocks of bytes, or not stored at
// all: what their plans hold, that they take the ordinary step, and that
// weights are the same bits for every plan, number of threads and resumption.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/test_folder.h"
#include "few_records.h"
#include "graph/op.h"
#include "microbatch_nets.h"
#include "small_synthetic.h"
#include "thimble/data.h"
#include "thimble/model.h"
#include "thimble/plan.h"
#include "thimble/session.h"
#include "thimble/trainer.h"

namespace thimble::testing {
namespace {

const std::shared_ptr<const Optimizer> kPlainMomentum =
    Sgd({.weight_decay = 1e-3f});
const std::shared_ptr<const Optimizer> kNesterov =
    Sgd({.weight_decay = 1e-3f, .nesterov = true});
const std::shared_ptr<const Optimizer> kBytes =
    Sgd({.weight_decay = 1e-3f, .state = U8InBlocks()});

Precision InBytes(DType dtype) {
  Precision precision = Precision::All(dtype);
  precision.gradients = U8InBlocks();
  return precision;
}
Precision Nowhere(DType dtype) {
  Precision precision = Precision::All(dtype);
  precision.keeps_gradients = false;
  return precision;
}

// Asks for a stop after a step.
class StopAfter final : public TrainObserver {
 public:
  explicit StopAfter(int64_t step) : step_(step) {}
  void OnStep(const StepEvent& event) override {
    if (event.step == step_) stop = true;
  }
  void OnEpoch(const EpochEvent&) override {}

  std::atomic<bool> stop{false};

 private:
  int64_t step_;
};

class GradientSinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grey_ = SmallSynthetic::Open();
    ASSERT_NE(grey_, nullptr);
    auto colour = OpenDataset("synthetic-cifar", {});
    ASSERT_TRUE(colour.ok());
    colour_ = std::make_unique<FewRecords>(
        *std::move(colour), FewRecords::Sizes{.train = 40, .test = 10});
  }

  static Model ModelOf(const std::string& name) {
    const bool is_colour = name.starts_with("wrn");
    const int64_t side = is_colour ? 32 : 14;
    auto model = BuildModel(name, {.batch = 10,
                                   .images = {.channels = is_colour ? 3 : 1,
                                              .height = side,
                                              .width = side}});
    EXPECT_TRUE(model.ok()) << model.status().message();
    return *std::move(model);
  }

  std::string WeightsAfter(const std::string& name, const PlanOptions& options,
                           TrainOptions train = {},
                           TrainObserver* observer = nullptr) const {
    const auto plan = MakePlan(ModelOf(name), options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    if (!plan.ok()) return {};
    if (train.steps == 0) train.steps = 4;
    train.learning_rate = 0.05;
    const Dataset& data = name.starts_with("wrn") ? *colour_ : *grey_;
    const auto summary = Train(*plan, data, train, observer, {});
    EXPECT_TRUE(summary.ok()) << summary.status().message();
    return summary.ok() ? summary->weights_sha256 : std::string();
  }

  std::unique_ptr<Dataset> grey_, colour_;
};

bool IsGradientOfAWeight(const Value& v) {
  return v.role == Role::kGradient && v.spec.shape.rank() >= 2;
}

TEST_F(GradientSinkTest, APlanWithoutGradientsHasNoneOfAWeight) {
  for (const char* name : {"mlp", "cnn", "wrn-10-1", "lstm-2-16-14"}) {
    for (const int64_t microbatch : {10, 5}) {
      for (const bool fuse : {true, false}) {
        SCOPED_TRACE(name);
        PlanOptions options = {.optimizer = kPlainMomentum,
                               .microbatch = microbatch,
                               .fuse = fuse};
        const Plan with = PlanOf(ModelOf(name), options);
        options.precision = Nowhere(DType::kF32);
        const Plan without = PlanOf(ModelOf(name), options);
        size_t weights = 0;
        for (const ParameterState& p : with.parameters()) {
          const ValueSpec& spec = with.graph().value(p.parameter).spec;
          if (spec.shape.rank() >= 2) weights += spec.bytes();
        }
        int vectors = 0;
        for (const Value& v : without.graph().values()) {
          EXPECT_FALSE(IsGradientOfAWeight(v)) << v.name;
          if (v.role == Role::kGradient) ++vectors;
        }
        EXPECT_GT(vectors, 0);
        // Gradients that several microbatches add to live throughout.
        if (microbatch < 10) {
          EXPECT_LE(without.peak_bytes(Role::kGradient) + weights,
                    with.peak_bytes(Role::kGradient));
        }
        EXPECT_FALSE(without.UpdatesInBackward());
      }
    }
  }
}

TEST_F(GradientSinkTest, GradientsInBlocksAreThoseOfWeightsAlone) {
  for (const char* name : {"mlp", "cnn", "wrn-10-1", "lstm-2-16-14"}) {
    for (const int64_t microbatch : {10, 5}) {
      const Plan plan =
          PlanOf(ModelOf(name),
                 {.precision = InBytes(DType::kF16), .microbatch = microbatch});
      int gradients = 0;
      for (const Value& v : plan.graph().values()) {
        EXPECT_EQ(v.spec.storage == U8InBlocks(), IsGradientOfAWeight(v))
            << v.name;
        EXPECT_EQ(v.stream != 0, IsGradientOfAWeight(v)) << v.name;
        gradients += IsGradientOfAWeight(v) ? 1 : 0;
      }
      EXPECT_GT(gradients, 1);
    }
  }
}

// The order of all sums is the same, so the bits are.
TEST_F(GradientSinkTest, WithoutGradientsAStepOfOnePartIsTheOrdinaryOne) {
  for (const char* name : {"mlp", "cnn", "wrn-10-1"}) {
    for (const auto& optimizer :
         {kPlainMomentum, kNesterov, Sgd({.momentum = 0.0f})}) {
      SCOPED_TRACE(name);
      PlanOptions options = {.optimizer = optimizer, .threads = 2};
      const std::string weights = WeightsAfter(name, options);
      options.precision = Nowhere(DType::kF32);
      EXPECT_EQ(WeightsAfter(name, options), weights);
    }
  }
}

// All parts of one step, of made-up images. Gradients, or velocities where
// there are none, of the weights.
std::vector<std::vector<float>> WeightsAfterParts(const Plan& plan,
                                                  int64_t parts) {
  auto session = Session::Create(plan, {});
  EXPECT_TRUE(session.ok());
  Session& s = **session;
  s.Initialize(1);
  const int64_t count = plan.microbatch();
  for (int64_t part = 0; part < parts; ++part) {
    const auto images = s.TrainFeed<uint8_t>("images");
    for (size_t i = 0; i < images.size(); ++i) {
      images[i] = static_cast<uint8_t>(
          37 * i + 101 * static_cast<size_t>(part) + i * i / 7);
    }
    const auto labels = s.TrainFeed<int32_t>("labels");
    for (size_t i = 0; i < labels.size(); ++i) {
      labels[i] = static_cast<int32_t>(i % 3);
    }
    s.Differentiate(
        {.first = part * count, .count = count, .total = parts * count});
  }
  std::vector<std::vector<float>> values;
  for (const ParameterState& p : plan.parameters()) {
    if (plan.graph().value(p.parameter).spec.shape.rank() < 2) continue;
    const auto of = s.Floats(p.gradient.valid() ? p.gradient : p.state[0]);
    values.emplace_back(of.begin(), of.end());
  }
  return values;
}

// From zero and without decay, a velocity is the sum of the parts, which are
// added in the order in which a gradient's are: to the bit.
TEST_F(GradientSinkTest, TheFirstVelocityIsTheGradient) {
  struct Case {
    Model model;
    int64_t microbatch, ghost_batch;
  };
  const Case cases[] = {
      {Plain(8), 8, 0},      {Plain(8), 2, 0},
      {Normalized(8), 4, 0}, {Normalized(8), 8, 2},
      {Normalized(8), 4, 2}, {ModelOf("lstm-2-16-14"), 10, 0}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.model.name);
    PlanOptions options = {.optimizer = Sgd({.momentum = 0.9f}),
                           .threads = 2,
                           .microbatch = c.microbatch,
                           .ghost_batch = c.ghost_batch};
    const int64_t parts = c.model.batch() / c.microbatch;
    const auto want = WeightsAfterParts(PlanOf(c.model, options), parts);
    options.precision = Nowhere(DType::kF32);
    const auto got = WeightsAfterParts(PlanOf(c.model, options), parts);
    ASSERT_GT(want.size(), 2u);
    EXPECT_EQ(got, want);
  }
}

struct Setting {
  const char* what;
  std::shared_ptr<const Optimizer> optimizer;
  Precision precision;
  int64_t microbatch;
};

const Setting kSettings[] = {
    {"u8", kNesterov, InBytes(DType::kF32), 5},
    {"u8 in one part", kNesterov, InBytes(DType::kF16), 10},
    {"none", kPlainMomentum, Nowhere(DType::kF32), 5},
    {"none, all in few bits", kBytes, Nowhere(DType::kF16), 5},
};
const Setting kAtOnce = {"none, Nesterov", kNesterov, Nowhere(DType::kF32), 10};

PlanOptions OptionsOf(const Setting& s) {
  return {.optimizer = s.optimizer,
          .precision = s.precision,
          .microbatch = s.microbatch};
}

TEST_F(GradientSinkTest, BitsAreTheSameForEveryPlanAndNumberOfThreads) {
  for (const char* name : {"cnn", "wrn-10-1", "lstm-2-16-14"}) {
    std::vector<Setting> settings(std::begin(kSettings), std::end(kSettings));
    if (name[0] != 'l') settings.push_back(kAtOnce);
    for (const Setting& setting : settings) {
      SCOPED_TRACE(std::string(name) + " " + setting.what);
      const PlanOptions options = OptionsOf(setting);
      const std::string weights = WeightsAfter(name, options);
      for (const int threads : {2, 3}) {
        PlanOptions other = options;
        other.threads = threads;
        other.recompute = threads == 2 ? "sqrt" : "recursive-1";
        EXPECT_EQ(WeightsAfter(name, other), weights) << threads << " threads";
      }
      PlanOptions other = options;
      other.two_pass = setting.what != kAtOnce.what;
      other.inplace = false;
      other.sharing = false;
      TrainOptions poisoned;
      poisoned.poison = true;
      EXPECT_EQ(WeightsAfter(name, other, poisoned), weights);
    }
  }
}

TEST_F(GradientSinkTest, ARunThatIsResumedEndsInTheSameBits) {
  for (const Setting& setting : {kSettings[0], kSettings[3], kAtOnce}) {
    SCOPED_TRACE(setting.what);
    const TestFolder folder;
    const PlanOptions options = OptionsOf(setting);
    TrainOptions train;
    train.out_dir = folder.File("run");
    train.resume = true;
    StopAfter two(2);
    train.stop = &two.stop;
    const std::string half = WeightsAfter("cnn", options, train, &two);
    train.stop = nullptr;
    const std::string resumed = WeightsAfter("cnn", options, train);
    EXPECT_EQ(resumed, WeightsAfter("cnn", options));
    EXPECT_NE(resumed, half);
  }
}

// Groups of a batch are parts of a gradient too.
TEST_F(GradientSinkTest, GhostBatchesAddTheirPartsUp) {
  const Model model = Normalized(8);
  for (const Precision& precision :
       {InBytes(DType::kF32), Nowhere(DType::kF32)}) {
    const Plan plan = PlanOf(model, {.optimizer = kPlainMomentum,
                                     .precision = precision,
                                     .ghost_batch = 4});
    EXPECT_FALSE(plan.UpdatesInBackward());
  }
  const auto refused = MakePlan(model, {.optimizer = kNesterov,
                                        .precision = Nowhere(DType::kF32),
                                        .ghost_batch = 4});
  EXPECT_FALSE(refused.ok());
}

TEST_F(GradientSinkTest, WhatNeedsAGradientIsRefusedWithAdvice) {
  const struct {
    PlanOptions options;
    const char* model;
    const char* why;
    const char* advice;
  } cases[] = {
      {{.optimizer = kNesterov, .microbatch = 5},
       "cnn",
       "Nesterov's step needs a weight's gradient at once",
       "SgdOptions::nesterov = false"},
      {{.optimizer = kNesterov,
        .budget = 100'000'000,
        .allow_microbatch = true},
       "cnn",
       "Nesterov's step needs a weight's gradient at once",
       "SgdOptions::nesterov = false"},
      {{.optimizer = kNesterov},
       "lstm-2-16-14",
       "time steps",
       "SgdOptions::nesterov = false"},
      {{.optimizer = Sgd({.momentum = 0.0f}), .microbatch = 5},
       "cnn",
       "there must be a momentum",
       "SgdOptions::momentum > 0"},
      {{.optimizer = kNesterov, .two_pass = true},
       "wrn-10-1",
       "read it once more",
       "PlanOptions::two_pass"},
      {{.optimizer = Adam({})}, "cnn", "adam", "Precision::gradients"},
      {{.optimizer = Adam({.decoupled = true}), .microbatch = 5},
       "cnn",
       "adamw",
       "use SGD"},
  };
  for (const auto& c : cases) {
    PlanOptions options = c.options;
    options.precision.keeps_gradients = false;
    const Status status = MakePlan(ModelOf(c.model), options).status();
    ASSERT_FALSE(status.ok()) << c.why;
    EXPECT_NE(status.message().find(c.why), std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find(c.advice), std::string::npos)
        << status.message();
    options.precision.keeps_gradients = true;
    EXPECT_TRUE(MakePlan(ModelOf(c.model), options).ok());
  }
}

TEST_F(GradientSinkTest, ARefusedBudgetDoesNotAdviseWhatIsNotPossible) {
  for (const auto& optimizer : {kPlainMomentum, kNesterov}) {
    const PlanOptions options = {.optimizer = optimizer,
                                 .precision = Nowhere(DType::kF32),
                                 .recompute = "auto",
                                 .budget = 100'000};
    const Status status = MakePlan(ModelOf("wrn-10-1"), options).status();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.message().find("two_pass") != std::string::npos,
              optimizer == kPlainMomentum)
        << status.message();
  }
}

// A weight that is updated in backward is read before, or the plan is refused.
TEST_F(GradientSinkTest, ThePlanThatReadsAWeightAfterItsUpdateIsNotValid) {
  const Plan plan = PlanOf(ModelOf("cnn"), {.optimizer = kNesterov,
                                            .precision = Nowhere(DType::kF32)});
  ASSERT_TRUE(plan.UpdatesInBackward());
  PlanParts parts = plan.parts();
  bool is_swapped = false;
  for (size_t t = 1; t < parts.schedule.size() && !is_swapped; ++t) {
    const Op& op = parts.graph.op(parts.schedule[t].op);
    if (parts.schedule[t].phase != Phase::kMicrobatch) break;
    if ((op.def->Mutates() & 1) == 0) continue;
    const Op& before = parts.graph.op(parts.schedule[t - 1].op);
    for (ValueId v : before.inputs) is_swapped |= v == op.inputs[0];
    if (is_swapped) std::swap(parts.schedule[t], parts.schedule[t - 1]);
  }
  ASSERT_TRUE(is_swapped);
  const Status status = ValidatePlan(Plan(parts));
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("reads after its update"), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace thimble::testing
