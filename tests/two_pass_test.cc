// SPDX-License-Identifier: Apache-2.0
//
// Gradients in two passes: the same bits, fewer bytes, and the work that it
// should be.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "closest_plan.h"
#include "gradient_check.h"
#include "graph/op.h"
#include "ops/two_pass_grad.h"
#include "thimble/model.h"
#include "thimble/network.h"
#include "thimble/plan.h"
#include "thimble/session.h"

namespace thimble::testing {
namespace {

Plan SoundPlan(const Model& model, const PlanOptions& options) {
  Result<Plan> plan = MakePlan(model, options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  const Status status = ValidatePlan(*plan);
  EXPECT_TRUE(status.ok()) << status.message();
  return *std::move(plan);
}

int TwoPassOps(const Plan& plan) {
  return static_cast<int>(std::ranges::count_if(
      plan.graph().ops(),
      [](const Op& op) { return Is<ops::NormReluConvGradRest>(op); }));
}

// Parameters and running statistics after steps of which one has a batch that
// is not full.
std::vector<float> StateAfterSteps(const Model& model, const Plan& plan) {
  auto created = Session::Create(plan, {.poison = true});
  EXPECT_TRUE(created.ok()) << created.status().message();
  Session& session = **created;
  session.Initialize(3);
  for (const int64_t count : {plan.batch(), plan.batch() - 1, plan.batch()}) {
    Differentiate(RandomBatch(model, count, 1), session);
    session.Update(0.05f);
  }
  std::vector<float> state;
  const auto keep = [&](ValueId v) {
    const auto values = session.Floats(v);
    state.insert(state.end(), values.begin(), values.end());
  };
  for (const ParameterState& p : plan.parameters()) keep(p.parameter);
  for (ValueId v : plan.statistics()) keep(v);
  return state;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

Model SmallWrn() {
  Result<Model> model = BuildModel(
      "wrn-16-1",
      {.batch = 6, .images = {.channels = 3, .height = 32, .width = 32}});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

TEST(TwoPass, LearnsTheSameWeightsInFewerBytes) {
  const Model model = SmallWrn();
  const std::vector<float> plain = StateAfterSteps(model, SoundPlan(model, {}));
  for (const char* strategy : {"none", "residual-1*", "auto"}) {
    SCOPED_TRACE(strategy);
    PlanOptions options{.recompute = strategy};
    if (options.recompute == "auto") options.budget = 0;
    const Plan one_pass = *MakeClosestPlan(model, options);
    options.two_pass = true;
    for (const int threads : {1, 2}) {
      options.threads = threads;
      const Plan plan = *MakeClosestPlan(model, options);
      EXPECT_TRUE(ValidatePlan(plan).ok());
      EXPECT_GT(TwoPassOps(plan), 0);
      EXPECT_TRUE(SameBits(StateAfterSteps(model, plan), plain)) << threads;
      if (threads > 1) continue;
      EXPECT_LT(plan.lower_bound(), one_pass.lower_bound());
      EXPECT_LT(plan.arena_bytes(), one_pass.arena_bytes());
    }
  }
}

TEST(TwoPass, KeepsTheBitsOfMicrobatchesAndGroups) {
  const Model model = SmallWrn();
  for (PlanOptions options :
       {PlanOptions{.microbatch = 3}, PlanOptions{.ghost_batch = 2},
        PlanOptions{.microbatch = 3, .inplace = false}}) {
    options.recompute = "residual-1*";
    const Plan plain = SoundPlan(model, options);
    options.two_pass = true;
    const Plan plan = SoundPlan(model, options);
    EXPECT_GT(TwoPassOps(plan), 0);
    EXPECT_TRUE(
        SameBits(StateAfterSteps(model, plan), StateAfterSteps(model, plain)));
  }
}

// A block whose convolutions read and add in many ways, large enough for its
// gradients to be the peak. The sum of the last one is also what its input adds
// to: grad_y and the other gradient are one value.
Model ResidualNet(int64_t batch, int64_t side) {
  Network net("residual", batch);
  ValueId x = net.Images({.channels = 1, .height = side, .width = side});
  x = net.Conv2d("stem", x, {.channels = 4});
  const auto conv = [&](const std::string& name, ValueId from) {
    const ValueId on = net.Relu(net.BatchNorm(name + ".bn", from));
    return net.Conv2d(name, on, {.channels = 4});
  };
  x = net.Add(conv("a2", conv("a1", x)), x);
  x = net.Add(conv("b", x), x);
  const ValueId side_branch = net.Relu(x);
  x = net.Add(net.Add(conv("c", x), side_branch), x);
  x = net.Linear("head", net.GlobalAveragePool(x), 3);
  Result<Model> model = net.Finish(x);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

// In a plan this small the peak is a kernel's scratch, and everything is done
// in one pass; the next test has the same network in two.
TEST(TwoPass, TheirNetworkHasExactGradients) {
  const Model model = ResidualNet(/*batch=*/3, /*side=*/6);
  ExpectGradients(model, FindPoint(model, 3, 1));
}

TEST(TwoPass, LeavesAloneWhatIsReadElsewhere) {
  const Model model = ResidualNet(/*batch=*/8, /*side=*/24);
  const Plan plain = SoundPlan(model, {});
  const std::vector<float> state = StateAfterSteps(model, plain);
  for (const char* strategy : {"none", "every-1", "recursive-1"}) {
    SCOPED_TRACE(strategy);
    const Plan plan =
        SoundPlan(model, {.recompute = strategy, .two_pass = true});
    EXPECT_GT(TwoPassOps(plan), 0);
    EXPECT_TRUE(SameBits(StateAfterSteps(model, plan), state));
  }
}

TEST(TwoPass, CountsTheSecondConvolutionAsRecomputed) {
  const Model model = SmallWrn();
  const PlanOptions options{.recompute = "residual-1*"};
  const Plan one = SoundPlan(model, options);
  PlanOptions with = options;
  with.two_pass = true;
  const Plan two = SoundPlan(model, with);
  const int64_t more = two.flops_step() - one.flops_step();
  EXPECT_GT(more, 0);
  EXPECT_EQ(two.flops_recompute() - one.flops_recompute(), more);
  // What it adds is the convolutions that run twice, and the mask.
  int64_t convolutions = 0;
  for (const Op& op : two.graph().ops()) {
    if (!Is<ops::NormReluConvGradRest>(op)) continue;
    const Shape& grad_y = two.graph().value(op.inputs[0]).spec.shape;
    const Shape& w = two.graph().value(op.inputs[1]).spec.shape;
    convolutions += 2 * grad_y.elements() * w.elements_from(1);
  }
  EXPECT_GT(more, convolutions);
  EXPECT_LT(more, convolutions + convolutions / 20);
}

TEST(TwoPass, DoesNothingWhereThePeakStandsElsewhere) {
  const Result<Model> model =
      BuildModel("mlp", {.batch = 8, .images = {.height = 28, .width = 28}});
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(SoundPlan(*model, {.two_pass = true}).Explain(),
            SoundPlan(*model, {}).Explain());
}

}  // namespace
}  // namespace thimble::testing
