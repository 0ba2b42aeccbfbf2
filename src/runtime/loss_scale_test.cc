// SPDX-License-Identifier: Apache-2.0
//
// Steps whose gradients are not finite: nothing of them is applied.
#include <gtest/gtest.h>

#include <string>

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
