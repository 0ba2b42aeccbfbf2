// SPDX-License-Identifier: Apache-2.0
//
// Gradients of layers together, and what plans make of them: all of a Session's
// f32 gradients against complex-step derivatives of the scalar interpreter.
// Single ops are every_op_test.cc's.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gradient_check.h"
#include "graph/op.h"
#include "ops/lstm_gates.h"
#include "ops/projected_loss.h"
#include "thimble/network.h"

namespace thimble::testing {
namespace {

constexpr int64_t kBatch = 3;
constexpr int64_t kClasses = 3;
// Not square, so that height and width cannot be taken for each other.
const ImageLayer kImages = {.channels = 2, .height = 6, .width = 5};

// Where the layer under test stands: on an image value that depends on
// parameters, whose gradient is therefore wanted too.
using Layers = std::function<ValueId(Network&, ValueId)>;

// Checks the network images -> conv -> `layers` -> logits. `layers` must leave
// rows; FinishImages makes them of images.
void Check(const Layers& layers) {
  Network net("gradient", kBatch);
  ValueId x = net.Images(kImages);
  x = net.Conv2d("before", x, {.channels = 3});
  const Result<Model> model = net.Finish(layers(net, x));
  ASSERT_TRUE(model.ok()) << model.status().message();
  ExpectGradients(*model, FindPoint(*model, kBatch, 1));
}

ValueId FinishImages(Network& net, ValueId x) {
  return net.Linear("after", net.Flatten(x), kClasses);
}

void CheckImages(const Layers& layers) {
  Check([&](Network& net, ValueId x) {
    return FinishImages(net, layers(net, x));
  });
}

TEST(Gradient, OfStackedLinearLayersIsExact) {
  Check([](Network& net, ValueId x) {
    x = net.Linear("fc1", net.Flatten(x), 7);
    x = net.Linear("fc2", x, 4, /*bias=*/false);
    return net.Linear("fc3", x, kClasses);
  });
}

TEST(Gradient, OfBiasUnderBatchNormIsZeroUpToRounding) {
  CheckImages([](Network& net, ValueId x) {
    return net.BatchNorm("bn", net.Bias("bias", x));
  });
}

// Losses of three steps that change nothing, from a session that stands after
// `steps` steps.
std::vector<float> LossesAfter(const Model& model, uint64_t seed,
                               uint64_t steps) {
  const Result<Plan> plan = MakePlan(model, {});
  EXPECT_TRUE(plan.ok());
  auto session = Session::Create(*plan, {});
  EXPECT_TRUE(session.ok());
  (*session)->Initialize(seed);
  LoadParameters(RandomParameters(model, 1), **session);
  (*session)->GoOnAfter(seed, steps);
  std::vector<float> losses;
  for (int step = 0; step < 3; ++step) {
    losses.push_back(
        Differentiate(RandomBatch(model, kBatch, 1), **session).loss);
    (*session)->Update(0.0f);
  }
  return losses;
}

TEST(Dropout, DrawsAnotherMaskInEachStepAndTheSameOnesAfterAResume) {
  Network net("dropout", kBatch);
  const ValueId x = net.Dropout(net.Flatten(net.Images(kImages)), 0.5);
  const Result<Model> model = net.Finish(net.Linear("fc", x, kClasses));
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::vector<float> losses = LossesAfter(*model, 3, 0);
  EXPECT_EQ(std::set<float>(losses.begin(), losses.end()).size(), 3u);
  const std::vector<float> later = LossesAfter(*model, 3, 1);
  EXPECT_EQ(later[0], losses[1]);
  EXPECT_EQ(later[1], losses[2]);
  EXPECT_NE(LossesAfter(*model, 4, 0)[0], losses[0]);
}

// The plan of `layers` uses an op of this name.
void ExpectUses(const Layers& layers, const char* op_name) {
  Network net("gradient", kBatch);
  const ValueId x = net.Conv2d("before", net.Images(kImages), {});
  const Result<Model> model = net.Finish(layers(net, x));
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Result<Plan> plan = MakePlan(*model, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(std::ranges::any_of(plan->graph().ops(), [&](const Op& op) {
    return op.def->name() == op_name;
  })) << op_name;
}

TEST(Gradient, OfReluThatIsKeptThroughAViewIsExact) {
  const Layers layers = [](Network& net, ValueId x) {
    return FinishImages(net, net.Relu(x));
  };
  ExpectUses(layers, "relu-grad");
  Check(layers);
}

TEST(Gradient, OfAResidualBlockIsExact) {
  CheckImages([](Network& net, ValueId x) {
    x = net.Relu(net.BatchNorm("bn0", x));
    ValueId y = net.Conv2d("conv1", x, {.channels = 4, .stride = 2});
    y = net.Relu(net.BatchNorm("bn1", y));
    y = net.BatchNorm("bn2", net.Conv2d("conv2", y, {.channels = 4}));
    return net.Relu(net.Add(y, net.Shortcut(x, 4, 2)));
  });
}

TEST(Gradient, OfABottleneckBlockWithAProjectionIsExact) {
  for (const bool stride_in_conv2 : {false, true}) {
    SCOPED_TRACE(stride_in_conv2 ? "stride in conv2" : "stride in conv1");
    CheckImages([&](Network& net, ValueId x) {
      const auto conv1x1 = [&](const char* name, ValueId from, int64_t channels,
                               int64_t stride) {
        return net.Conv2d(name, from,
                          {.channels = channels,
                           .kernel = 1,
                           .stride = stride,
                           .padding = 0});
      };
      const ValueId a = net.Relu(net.BatchNorm("bn1", x));
      const ValueId shortcut = conv1x1("project", a, 8, 2);
      ValueId y = conv1x1("conv1", a, 2, stride_in_conv2 ? 1 : 2);
      y = net.Relu(net.BatchNorm("bn2", y));
      y = net.Conv2d("conv2", y,
                     {.channels = 2, .stride = stride_in_conv2 ? 2 : 1});
      y = net.Relu(net.BatchNorm("bn3", y));
      return net.Add(shortcut, conv1x1("conv3", y, 8, 1));
    });
  }
}

// Two layers of different widths over the steps of `images`, the upper one
// read at its last two steps.
Result<Model> TwoLstms(const ImageLayer& images, int64_t steps) {
  Network net("lstm", kBatch);
  const int64_t features = net.ImageSequence(images, steps);
  const LstmWeights lower = net.Lstm("lower", features, 5);
  const LstmWeights upper = net.Lstm("upper", 5, 3);
  std::vector<LstmState> low(1), high(1);
  for (int64_t step = 0; step < steps; ++step) {
    const std::string name = std::to_string(step);
    low.push_back(net.LstmStep("lower" + name, net.SequenceStep(step), lower,
                               low.back()));
    high.push_back(
        net.LstmStep("upper" + name, low.back().h, upper, high.back()));
  }
  const ValueId sum = net.Add(high.back().h, high[high.size() - 2].h);
  return net.Finish(net.Linear("fc", sum, kClasses));
}

TEST(Gradient, OfAnLstmIsExactForStepsAndLayers) {
  // Images of 2 x 6 x 5: a step is a part of a row, or crosses channels.
  for (const int64_t steps : {2, 3, 6, 12}) {
    for (const int64_t count : {int64_t{1}, kBatch}) {
      SCOPED_TRACE("steps " + std::to_string(steps) + " rows " +
                   std::to_string(count));
      const Result<Model> model = TwoLstms(kImages, steps);
      ASSERT_TRUE(model.ok()) << model.status().message();
      ExpectGradients(*model, FindPoint(*model, count, 1));
    }
  }
}

TEST(Gradient, OfAnLstmAddsUpInOneBufferPerWeight) {
  const Result<Model> model = TwoLstms(kImages, 12);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Result<Plan> plan = MakePlan(*model, {});
  ASSERT_TRUE(plan.ok());
  std::map<std::string, std::set<size_t>> offsets;
  int64_t steps = 0;
  for (const Op& op : plan->graph().ops()) {
    if (!Is<ops::LstmGatesGradWeight>(op)) continue;
    ++steps;
    for (size_t k = 0; k < op.outputs.size(); ++k) {
      offsets[op.name.substr(0, 5) + std::to_string(k)].insert(
          plan->OffsetOf(op.outputs[k]));
    }
  }
  EXPECT_EQ(steps, 24);
  ASSERT_EQ(offsets.size(), 6u);
  for (const auto& [name, places] : offsets) {
    EXPECT_EQ(places.size(), 1u) << name;
  }
}

// Logits are made for some rows after the others, and again in backward.
TEST(Gradient, OfALossOfTokensInSeveralBlocks) {
  constexpr int64_t kTokens = 2 * ops::kRowsAtOnce + 5;
  Network net("gradient", kTokens, "tokens");
  const ValueId x =
      net.Flatten(net.Images({.channels = 1, .height = 2, .width = 2}));
  const Result<Model> model =
      net.FinishText("projection", net.Linear("fc", x, 3), 5);
  ASSERT_TRUE(model.ok()) << model.status().message();
  ExpectGradients(*model, FindPoint(*model, kTokens, 1));
}

TEST(Gradient, OfParametersBesideTheLossIsNotMade) {
  Network net("gradient", kBatch);
  const ValueId x = net.Flatten(net.Images(kImages));
  const ValueId logits = net.Linear("used", x, kClasses);
  net.Relu(net.Linear("unused", x, 2));
  const Result<Model> model = net.Finish(logits);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Result<Plan> plan = MakePlan(*model, {});
  ASSERT_TRUE(plan.ok());
  for (const ParameterState& state : plan->parameters()) {
    const bool used =
        plan->graph().value(state.parameter).name.starts_with("used");
    EXPECT_EQ(state.gradient.valid(), used);
    EXPECT_EQ(!state.state.empty(), used);
  }
  ExpectGradients(*model, FindPoint(*model, kBatch, 1));
}

}  // namespace
}  // namespace thimble::testing
