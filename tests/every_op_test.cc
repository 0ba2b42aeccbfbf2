// SPDX-License-Identifier: Apache-2.0
//
// The gradient rule of every op of the oracle, in small networks around its
// samples: all of a Session's f32 gradients against complex-step derivatives of
// the scalar interpreter, in all forms that plans give to an op.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gradient_check.h"
#include "sample_nets.h"
#include "thimble/plan.h"
#include "thimble/session.h"

namespace thimble::testing {
namespace {

TEST(EveryOp, HasExactGradientsFusedOrNot) {
  double worst = 0;
  int nets = 0;
  ForEachSampleNet(3, kAllAround, [&](const SampleNet& net) {
    const ExactPoint point = FindPoint(net.model, 3, 1);
    worst = std::max(worst, ExpectGradients(net.model, point));
    ++nets;
    // Without a norm there is nothing to fuse but images.
    if (!HasRunningStatistics(net.model)) return;
    SCOPED_TRACE("not fused");
    worst = std::max(worst, ExpectGradients(net.model, point, {.fuse = false}));
  });
  RecordProperty("worst", std::to_string(worst));
  EXPECT_GT(nets, 100);
}

TEST(EveryOp, HasExactGradientsInMicrobatchesAndGroups) {
  constexpr Around kPlaces[] = {Around::kPassedOn, Around::kNormalized};
  ForEachSampleNet(4, kPlaces, [](const SampleNet& net) {
    // The last part has one row.
    const ExactPoint point = FindPoint(net.model, 3, 1, 2);
    ExpectGradients(net.model, point, {.microbatch = 2});
    if (!HasRunningStatistics(net.model)) return;
    SCOPED_TRACE("groups");
    ExpectGradients(net.model, point, {.ghost_batch = 2});
  });
}

TEST(EveryOp, HasExactGradientsForBatchOneAndForRowsThatABatchLacks) {
  constexpr Around kPlaces[] = {Around::kPassedOn};
  ForEachSampleNet(1, kPlaces, [](const SampleNet& net) {
    ExpectGradients(net.model, FindPoint(net.model, 1, 1));
  });
  ForEachSampleNet(3, kPlaces, [](const SampleNet& net) {
    ExpectGradients(net.model, FindPoint(net.model, 2, 1));
  });
}

// Gradients and loss of a step that is not full.
std::vector<float> StepOf(const Model& model, const PlanOptions& options) {
  const Result<Plan> plan = MakePlan(model, options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  const Status valid = ValidatePlan(*plan);
  EXPECT_TRUE(valid.ok()) << valid.message();
  auto session = Session::Create(*plan, {.poison = true});
  EXPECT_TRUE(session.ok()) << session.status().message();
  (*session)->Initialize(1);
  LoadParameters(RandomParameters(model, 1), **session);
  const Batch batch = RandomBatch(model, plan->batch() - 1, 1);
  std::vector<float> bits = {Differentiate(batch, **session).loss};
  for (const ParameterState& state : plan->parameters()) {
    if (!state.gradient.valid()) continue;
    const auto gradient = (*session)->Floats(state.gradient);
    bits.insert(bits.end(), gradient.begin(), gradient.end());
  }
  return bits;
}

TEST(EveryOp, GivesTheSameBitsHoweverItIsPlanned) {
  constexpr Around kPlaces[] = {Around::kRead, Around::kNormalized};
  ForEachSampleNet(4, kPlaces, [](const SampleNet& net) {
    for (const bool fuse : {true, false}) {
      if (!fuse && !HasRunningStatistics(net.model)) continue;
      const std::vector<float> bits = StepOf(net.model, {.fuse = fuse});
      for (const float x : bits) ASSERT_TRUE(std::isfinite(x));
      const auto expect = [&](const char* what, PlanOptions options) {
        options.fuse = fuse;
        EXPECT_TRUE(StepOf(net.model, options) == bits)
            << what << (fuse ? ", fused" : "");
      };
      expect("all is recomputed", {.recompute = "recursive-1"});
      expect("recomputed, two threads",
             {.threads = 2, .inplace = false, .recompute = "every-1"});
      if (fuse) expect("two passes", {.two_pass = true});
    }
  });
}

}  // namespace
}  // namespace thimble::testing
