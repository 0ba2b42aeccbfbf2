// SPDX-License-Identifier: Apache-2.0
//
// What ops of networks make of their inputs' shapes, and which they refuse.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/op.h"
#include "ops/add.h"
#include "ops/batch_norm.h"
#include "ops/bias.h"
#include "ops/commit.h"
#include "ops/conv2d.h"
#include "ops/conv_geometry.h"
#include "ops/dropout.h"
#include "ops/fused_conv.h"
#include "ops/image_conv.h"
#include "ops/image_slice.h"
#include "ops/linear.h"
#include "ops/lstm_cell.h"
#include "ops/lstm_gates.h"
#include "ops/norm_relu_conv.h"
#include "ops/normalize.h"
#include "ops/pool.h"
#include "ops/relu.h"
#include "ops/reshape.h"
#include "ops/shortcut.h"
#include "ops/softmax_cross_entropy.h"
#include "ops/test_specs.h"

namespace thimble::ops {
namespace {

using Shapes = std::vector<Shape>;

// The shapes that a graph gives to the outputs.
Shapes Made(const std::shared_ptr<const OpDef>& def,
            const std::vector<ValueSpec>& inputs) {
  Graph graph;
  std::vector<ValueId> ids;
  for (const ValueSpec& spec : inputs) {
    ids.push_back(graph.AddValue("in", spec, Role::kInput));
  }
  const auto made = graph.AddOp("layer", def, ids);
  EXPECT_TRUE(made.ok()) << made.status().message();
  Shapes shapes;
  if (!made.ok()) return shapes;
  for (ValueId v : *made) shapes.push_back(graph.value(v).spec.shape);
  return shapes;
}

// The message names the kind of op, the op, and the shapes of the inputs at the
// places in `named`.
void ExpectRefused(const std::shared_ptr<const OpDef>& def,
                   const std::vector<ValueSpec>& inputs,
                   const std::vector<size_t>& named = {0}) {
  Graph graph;
  std::vector<ValueId> ids;
  std::string all;
  for (const ValueSpec& spec : inputs) {
    ids.push_back(graph.AddValue("in", spec, Role::kInput));
    all += " " + spec.shape.ToString() + " " + spec.storage.ToString();
  }
  const auto made = graph.AddOp("layer", def, ids);
  ASSERT_FALSE(made.ok()) << def->name() << " of" << all;
  const std::string& message = made.status().message();
  EXPECT_TRUE(message.starts_with(std::string(def->name()) + " 'layer': "))
      << message;
  for (const size_t i : named) {
    EXPECT_NE(message.find(inputs[i].shape.ToString()), std::string::npos)
        << message;
  }
}

template <typename T, typename... Args>
std::shared_ptr<const OpDef> Of(Args&&... args) {
  return std::make_shared<T>(std::forward<Args>(args)...);
}

TEST(Infer, Conv2dFollowsStrideAndPadding) {
  EXPECT_EQ(Made(Of<Conv2d>(1, 1), {F32({8, 3, 32, 32}), F32({16, 3, 3, 3})}),
            Shapes({{8, 16, 32, 32}}));
  EXPECT_EQ(Made(Of<Conv2d>(2, 3), {F32({8, 3, 225, 224}), F32({64, 3, 7, 7})}),
            Shapes({{8, 64, 113, 112}}));
  EXPECT_EQ(Made(Of<Conv2d>(1, 0), {F32({1, 2, 3, 3}), F32({4, 2, 3, 3})}),
            Shapes({{1, 4, 1, 1}}));
}

TEST(Infer, Conv2dRefusesWhatDoesNotFit) {
  const auto conv = Of<Conv2d>(1, 0);
  const ValueSpec w = F32({4, 3, 3, 3});
  ExpectRefused(conv, {F32({8, 2, 5, 5}), w}, {0, 1});
  ExpectRefused(conv, {F32({8, 3, 25}), w}, {0, 1});
  ExpectRefused(conv, {I32({8, 3, 5, 5}), w}, {0});
  ExpectRefused(conv, {F32({8, 3, 5, 5}), I32({4, 3, 3, 3})}, {1});
  ExpectRefused(conv, {F32({8, 3, 2, 5}), w}, {0, 1});
  ExpectRefused(Of<Conv2d>(0, 1), {F32({8, 3, 5, 5}), w}, {});
  ExpectRefused(Of<Conv2d>(1, -1), {F32({8, 3, 5, 5}), w}, {});
}

TEST(Infer, LinearMakesRowsOfTheWeightsRows) {
  EXPECT_EQ(Made(Of<Linear>(), {F32({8, 5}), F32({3, 5})}), Shapes({{8, 3}}));
  ExpectRefused(Of<Linear>(), {F32({8, 4}), F32({3, 5})}, {0, 1});
  ExpectRefused(Of<Linear>(), {F32({8, 5, 1}), F32({3, 5})}, {0, 1});
  ExpectRefused(Of<Linear>(), {U8({8, 5}), F32({3, 5})}, {0});
}

TEST(Infer, BiasNeedsOneValueForEachChannel) {
  EXPECT_EQ(Made(Of<Bias>(), {F32({8, 3, 2, 2}), F32({3})}),
            Shapes({{8, 3, 2, 2}}));
  ExpectRefused(Of<Bias>(), {F32({8, 3}), F32({8})}, {0, 1});
  ExpectRefused(Of<Bias>(), {F32({8}), F32({8})}, {0, 1});
  ExpectRefused(Of<Bias>(), {I32({8, 3}), F32({3})}, {0});
}

TEST(Infer, AddNeedsTwoOfOneShape) {
  EXPECT_EQ(Made(Of<Add>(), {F32({8, 3}), F32({8, 3})}), Shapes({{8, 3}}));
  ExpectRefused(Of<Add>(), {F32({8, 3}), F32({3, 8})}, {0, 1});
  ExpectRefused(Of<Add>(), {F32({8, 3}), I32({8, 3})}, {1});
}

TEST(Infer, BatchNormNeedsAParameterForEachChannel) {
  const ValueSpec c = F32({3});
  const auto norm = Of<BatchNorm>(BatchNormAttributes{});
  EXPECT_EQ(Made(norm, {F32({8, 3}), c, c, c, c}), Shapes({{8, 3}}));
  EXPECT_EQ(Made(norm, {F32({8, 3, 2, 2}), c, c, c, c}),
            Shapes({{8, 3, 2, 2}}));
  ExpectRefused(norm, {F32({8, 3, 2}), c, c, c, c});
  ExpectRefused(norm, {I32({8, 3}), c, c, c, c});
  for (size_t wrong = 1; wrong < 5; ++wrong) {
    std::vector<ValueSpec> inputs = {F32({8, 3}), c, c, c, c};
    inputs[wrong] = F32({4});
    ExpectRefused(norm, inputs, {0, wrong});
  }
  const std::vector<ValueSpec> good = {F32({8, 3}), c, c, c, c};
  ExpectRefused(Of<BatchNorm>(BatchNormAttributes{.epsilon = 0}), good, {});
  ExpectRefused(Of<BatchNorm>(BatchNormAttributes{.momentum = 1.5f}), good, {});
}

TEST(Infer, ReluAndDropoutKeepTheShape) {
  EXPECT_EQ(Made(Of<Relu>(), {F32({8, 3, 2})}), Shapes({{8, 3, 2}}));
  EXPECT_EQ(Made(Of<ReluWithMask>(), {F32({8, 3})}), Shapes({{8, 3}, {8, 3}}));
  ExpectRefused(Of<Relu>(), {U8({8, 3})});
  EXPECT_EQ(Made(Of<Dropout>(0.5, 0u), {F32({8, 3})}), Shapes({{8, 3}}));
  ExpectRefused(Of<Dropout>(0.5, 0u), {I32({8, 3})});
  ExpectRefused(Of<Dropout>(0.5, 0u), {ValueSpec{{8, 3}, DType::kF32}});
  ExpectRefused(Of<Dropout>(1.0, 0u), {F32({8, 3})}, {});
  ExpectRefused(Of<Dropout>(-0.1, 0u), {F32({8, 3})}, {});
}

TEST(Infer, PoolsFollowTheirWindow) {
  const Window two;
  const Window padded = {.kernel = 3, .stride = 2, .padding = 1};
  EXPECT_EQ(Made(Of<MaxPool>(two), {F32({8, 3, 5, 4})}),
            Shapes({{8, 3, 2, 2}}));
  EXPECT_EQ(Made(Of<MaxPool>(padded, true), {F32({8, 3, 5, 4})}),
            Shapes({{8, 3, 3, 2}, {8, 3, 3, 2}}));
  EXPECT_EQ(Made(Of<AveragePool>(two), {F32({8, 3, 4, 4})}),
            Shapes({{8, 3, 2, 2}}));
  EXPECT_EQ(Made(Of<GlobalAveragePool>(), {F32({8, 3, 4, 4})}),
            Shapes({{8, 3}}));
  for (const auto& pool : {Of<MaxPool>(two), Of<AveragePool>(two)}) {
    ExpectRefused(pool, {F32({8, 3, 1, 4})});
    ExpectRefused(pool, {F32({8, 3, 4})});
    ExpectRefused(pool, {I32({8, 3, 4, 4})});
  }
  ExpectRefused(Of<GlobalAveragePool>(), {F32({8, 3})});
  ExpectRefused(Of<GlobalAveragePool>(), {U8({8, 3, 4, 4})});
  ExpectRefused(Of<MaxPool>(Window{.kernel = 0}), {F32({8, 3, 4, 4})}, {});
  ExpectRefused(Of<MaxPool>(Window{.stride = 0}), {F32({8, 3, 4, 4})}, {});
}

TEST(Infer, ShortcutTakesEveryStridethPixel) {
  EXPECT_EQ(Made(Of<Shortcut>(16, 2), {F32({8, 3, 5, 4})}),
            Shapes({{8, 16, 3, 2}}));
  EXPECT_EQ(Made(Of<Shortcut>(2, 1), {F32({8, 3, 5, 4})}),
            Shapes({{8, 2, 5, 4}}));
  ExpectRefused(Of<Shortcut>(16, 0), {F32({8, 3, 5, 4})});
  ExpectRefused(Of<Shortcut>(0, 1), {F32({8, 3, 5, 4})});
  ExpectRefused(Of<Shortcut>(16, 2), {F32({8, 3})});
}

TEST(Infer, ViewsKeepTheNumberOfElements) {
  EXPECT_EQ(Made(Of<Flatten>(), {F32({8, 3, 5, 4})}), Shapes({{8, 60}}));
  ExpectRefused(Of<Flatten>(), {F32({8})});
  EXPECT_EQ(Made(Of<Reshape>(Shape{8, 60}), {F32({8, 3, 5, 4})}),
            Shapes({{8, 60}}));
  ExpectRefused(Of<Reshape>(Shape{8, 61}), {F32({8, 3, 5, 4})});
}

TEST(Infer, ImagesAreBytesWithConstantsForEachChannel) {
  const std::vector<float> three(3, 1.0f);
  const std::vector<float> one(1, 1.0f);
  const ValueSpec images = U8({8, 3, 5, 4});
  EXPECT_EQ(Made(Of<Normalize>(three, three), {images}),
            Shapes({{8, 3, 5, 4}}));
  ExpectRefused(Of<Normalize>(one, one), {images});
  ExpectRefused(Of<Normalize>(three, one), {images});
  ExpectRefused(Of<Normalize>(three, three), {F32({8, 3, 5, 4})});
  EXPECT_EQ(Made(Of<ImageSlice>(50, 10, three, three), {images}),
            Shapes({{8, 10}}));
  ExpectRefused(Of<ImageSlice>(51, 10, three, three), {images});
  ExpectRefused(Of<ImageSlice>(-1, 10, three, three), {images});
  ExpectRefused(Of<ImageSlice>(0, 0, three, three), {images});
  const ConvGeometry same = {.stride = 1, .padding = 1};
  const ValueSpec w = F32({4, 3, 3, 3});
  EXPECT_EQ(Made(Of<ImageConv>(same, three, three), {images, w}),
            Shapes({{8, 4, 5, 4}}));
  // Moments of each of two groups.
  EXPECT_EQ(Made(Of<ImageConv>(same, three, three, 2), {images, w}),
            Shapes({{8, 4, 5, 4}, {2, 4}, {2, 4}}));
  ExpectRefused(Of<ImageConv>(same, three, three), {F32({8, 3, 5, 4}), w});
  ExpectRefused(Of<ImageConv>(same, one, one), {images, w});
}

TEST(Infer, AFusedConvolutionNeedsWhatItsPartsNeed) {
  const ConvGeometry down = {.stride = 2, .padding = 1};
  const ValueSpec x = F32({8, 3, 5, 4});
  const ValueSpec c = F32({3});
  const ValueSpec w = F32({4, 3, 3, 3});
  const auto plain = Of<FusedConv>(down, BatchNormAttributes{}, false);
  const auto sum = Of<FusedConv>(down, BatchNormAttributes{}, true);
  EXPECT_EQ(Made(plain, {x, c, c, c, c, w}), Shapes({{8, 4, 3, 2}}));
  EXPECT_EQ(Made(sum, {x, c, c, c, c, w, F32({8, 4, 3, 2})}),
            Shapes({{8, 4, 3, 2}}));
  ExpectRefused(sum, {x, c, c, c, c, w, F32({8, 4, 5, 4})}, {6});
  ExpectRefused(plain, {x, F32({4}), c, c, c, w}, {0, 1});
  ExpectRefused(plain, {x, c, c, c, c, F32({4, 2, 3, 3})}, {0, 5});
}

TEST(Infer, LstmStepsKnowTheirState) {
  const ValueSpec x = F32({8, 5});
  const ValueSpec h = F32({8, 6});
  const ValueSpec w_x = F32({24, 5});
  const ValueSpec w_h = F32({24, 6});
  const ValueSpec b = F32({24});
  EXPECT_EQ(Made(Of<LstmGates>(false), {x, w_x, b}), Shapes({{8, 24}}));
  EXPECT_EQ(Made(Of<LstmGates>(true), {x, w_x, b, h, w_h}), Shapes({{8, 24}}));
  ExpectRefused(Of<LstmGates>(false), {x, F32({24, 6}), b}, {0, 1});
  ExpectRefused(Of<LstmGates>(false), {x, F32({23, 5}), F32({23})}, {0, 1});
  ExpectRefused(Of<LstmGates>(false), {x, w_x, F32({25})}, {0, 2});
  ExpectRefused(Of<LstmGates>(true), {x, w_x, b, F32({8, 7}), w_h}, {3, 4});
  ExpectRefused(Of<LstmGates>(true), {x, w_x, b, h, F32({24, 7})}, {3, 4});
  const ValueSpec z = F32({8, 24});
  EXPECT_EQ(Made(Of<LstmCell>(false, 1.0f), {z}), Shapes({{8, 6}, {8, 6}}));
  EXPECT_EQ(Made(Of<LstmCell>(true, 1.0f), {z, h}), Shapes({{8, 6}, {8, 6}}));
  ExpectRefused(Of<LstmCell>(false, 1.0f), {F32({8, 23})});
  ExpectRefused(Of<LstmCell>(true, 1.0f), {z, F32({8, 5})}, {0, 1});
  ExpectRefused(Of<LstmCell>(true, 1.0f), {z, I32({8, 6})}, {1});
}

TEST(Infer, TheLossNeedsALabelForEachRow) {
  const auto loss = Of<SoftmaxCrossEntropy>();
  EXPECT_EQ(Made(loss, {F32({8, 10}), I32({8})}), Shapes({{1}, {1}}));
  ExpectRefused(loss, {F32({8, 10}), I32({7})}, {0, 1});
  ExpectRefused(loss, {F32({8, 10}), F32({8})}, {1});
  ExpectRefused(loss, {F32({8, 10}), I32({8, 1})}, {0, 1});
  ExpectRefused(loss, {I32({8, 10}), I32({8})}, {0});
}

TEST(Infer, ACopyNeedsOneShape) {
  const ValueSpec w = F32({4, 3});
  EXPECT_EQ(Made(Of<Commit>(), {w, w}), Shapes());
  ExpectRefused(Of<Commit>(), {w, F32({12})}, {0, 1});
}

}  // namespace
}  // namespace thimble::ops
