// SPDX-License-Identifier: Apache-2.0
#include "ops/storage.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/op.h"
#include "ops/accumulate.h"
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
#include "ops/shortcut.h"
#include "ops/softmax_cross_entropy.h"
#include "ops/two_pass_grad.h"

namespace thimble::ops {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16,
                             DType::kU8,  DType::kI32, DType::kBit};

struct NamedInput {
  std::string name;
  ValueSpec spec;
};

// An op with inputs that it takes.
struct Case {
  std::shared_ptr<const OpDef> def;
  std::vector<NamedInput> inputs;
};

// Adds the case's op to a graph of its own, with input `k` stored as `dtype`.
Status AddTo(const Case& c, size_t k, DType dtype) {
  Graph graph;
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    ValueSpec spec = c.inputs[i].spec;
    if (i == k) spec.storage = dtype;
    inputs.push_back(graph.AddValue(c.inputs[i].name, spec, Role::kActivation));
  }
  return graph.AddOp("op", c.def, std::move(inputs), Role::kActivation)
      .status();
}

// Every input in every type: taken where it is the case's own, else refused
// with a message that names the input and both types.
void ExpectOnlyOwnTypes(const Case& c) {
  for (size_t k = 0; k < c.inputs.size(); ++k) {
    const auto& [name, spec] = c.inputs[k];
    for (const DType dtype : kDTypes) {
      SCOPED_TRACE(std::string(c.def->name()) + ", " + name + " as " +
                   DTypeName(dtype));
      const Status status = AddTo(c, k, dtype);
      if (dtype == spec.storage.dtype) {
        EXPECT_TRUE(status.ok()) << status.message();
        continue;
      }
      ASSERT_FALSE(status.ok());
      EXPECT_NE(status.message().find("needs " + name + " stored as " +
                                      spec.storage.ToString() + ", got " +
                                      DTypeName(dtype)),
                std::string::npos)
          << status.message();
    }
  }
}

template <typename Def, typename... Args>
std::shared_ptr<const OpDef> Make(const Args&... args) {
  return std::make_shared<Def>(args...);
}

ValueSpec Batch(const Shape& shape, DType dtype = DType::kF32) {
  return {shape, dtype, kBatchAxis};
}
ValueSpec Fixed(const Shape& shape) { return {shape, DType::kF32}; }

TEST(Storage, LinearOpsTakeF32Only) {
  const NamedInput x = {"x", Batch({2, 6})}, w = {"w", Fixed({8, 6})};
  const NamedInput grad_y = {"grad_y", Batch({2, 8})};
  ExpectOnlyOwnTypes({Make<Linear>(), {x, w}});
  ExpectOnlyOwnTypes({Make<LinearGradInput>(), {grad_y, w}});
  ExpectOnlyOwnTypes(
      {Make<LinearGradInput>(true), {grad_y, w, {"other", x.spec}}});
  ExpectOnlyOwnTypes({Make<LinearGradWeight>(), {x, grad_y}});
}

TEST(Storage, LstmGatesTakeF32Only) {
  const NamedInput x = {"x", Batch({2, 6})}, w_x = {"w_x", Fixed({8, 6})};
  const NamedInput bias = {"bias", Fixed({8})};
  const NamedInput h = {"h", Batch({2, 2})}, w_h = {"w_h", Fixed({8, 2})};
  const NamedInput grad_z = {"grad_z", Batch({2, 8})};
  const NamedInput sum_x = {"sum of grad_w_x", w_x.spec};
  const NamedInput sum_bias = {"sum of grad_bias", bias.spec};
  const NamedInput sum_h = {"sum of grad_w_h", w_h.spec};
  ExpectOnlyOwnTypes({Make<LstmGates>(false), {x, w_x, bias}});
  ExpectOnlyOwnTypes({Make<LstmGates>(true), {x, w_x, bias, h, w_h}});
  ExpectOnlyOwnTypes({Make<LstmGatesGradWeight>(false, false), {x, grad_z}});
  ExpectOnlyOwnTypes(
      {Make<LstmGatesGradWeight>(false, true), {x, grad_z, sum_x, sum_bias}});
  ExpectOnlyOwnTypes({Make<LstmGatesGradWeight>(true, true),
                      {x, grad_z, h, sum_x, sum_bias, sum_h}});
}

// What the norms and convolutions below read: images of 3 channels, which a
// convolution makes 5 of.
struct Images {
  NamedInput x = {"x", Batch({2, 3, 4, 4})};
  NamedInput images = {"images", Batch({2, 3, 4, 4}, DType::kU8)};
  NamedInput w = {"w", Fixed({5, 3, 3, 3})};
  NamedInput grad_y = {"grad_y", Batch({2, 5, 4, 4})};
  NamedInput residual = {"residual", Batch({2, 5, 4, 4})};
  NamedInput grad = {"grad", Batch({2, 3, 4, 4})};
  NamedInput other = {"other", Batch({2, 3, 4, 4})};
  NamedInput mean = {"mean", Fixed({3})};
  NamedInput variance = {"variance", Fixed({3})};
  NamedInput gamma = {"gamma", Fixed({3})};
  NamedInput beta = {"beta", Fixed({3})};
  NamedInput running_mean = {"running_mean", Fixed({3})};
  NamedInput running_variance = {"running_variance", Fixed({3})};
  NamedInput grad_gamma = {"grad_gamma", Fixed({3})};
  NamedInput grad_beta = {"grad_beta", Fixed({3})};
};

constexpr float kEpsilon = 1e-5f;

TEST(Storage, BatchNormsTakeF32Only) {
  const Images in;
  const NamedInput grad_y = {"grad_y", in.x.spec};
  ExpectOnlyOwnTypes(
      {Make<BatchNorm>(BatchNormAttributes{}),
       {in.x, in.gamma, in.beta, in.running_mean, in.running_variance}});
  ExpectOnlyOwnTypes(
      {Make<BatchNormTrain>(kEpsilon, 1), {in.x, in.gamma, in.beta}});
  ExpectOnlyOwnTypes({Make<BatchNormApply>(kEpsilon),
                      {in.x, in.gamma, in.beta, in.mean, in.variance}});
  for (const bool with_grad_x : {false, true}) {
    ExpectOnlyOwnTypes({Make<BatchNormGrad>(kEpsilon, with_grad_x),
                        {in.x, in.gamma, in.mean, in.variance, grad_y}});
  }
  ExpectOnlyOwnTypes(
      {Make<BatchNormTrack>(0.1f, 16, 2, kBatchAxis),
       {in.mean, in.variance, in.running_mean, in.running_variance}});
  ExpectOnlyOwnTypes({Make<Moments>(1), {in.x}});
  const std::vector<NamedInput> norm_grad = {
      in.grad,  in.x,          in.mean,     in.variance,
      in.gamma, in.grad_gamma, in.grad_beta};
  ExpectOnlyOwnTypes({Make<NormGrad>(kEpsilon, false), norm_grad});
  std::vector<NamedInput> with_other = norm_grad;
  with_other.push_back(in.other);
  ExpectOnlyOwnTypes({Make<NormGrad>(kEpsilon, true), with_other});
}

TEST(Storage, ConvolutionsTakeF32AndImageConvolutionsBytes) {
  const Images in;
  const ConvGeometry geometry = {.stride = 1, .padding = 1};
  const kernels::Conv2dShape shape = geometry.ShapeOf(in.x.spec, in.w.spec);
  ExpectOnlyOwnTypes({Make<Conv2d>(1, 1), {in.x, in.w}});
  ExpectOnlyOwnTypes(
      {Make<Conv2dGradInput>(shape, in.x.spec), {in.grad_y, in.w}});
  ExpectOnlyOwnTypes(
      {Make<Conv2dGradWeight>(shape, in.w.spec), {in.x, in.grad_y}});
  const std::vector<float> scale(3, 1.0f), shift(3, 0.0f);
  for (const int64_t groups : {0, 1}) {
    ExpectOnlyOwnTypes(
        {Make<ImageConv>(geometry, scale, shift, groups), {in.images, in.w}});
  }
  ExpectOnlyOwnTypes(
      {Make<ImageConvGradWeight>(geometry, scale, shift, in.w.spec),
       {in.images, in.grad_y}});
}

TEST(Storage, FusedConvolutionsTakeF32Only) {
  const Images in;
  const ConvGeometry geometry = {.stride = 1, .padding = 1};
  ExpectOnlyOwnTypes({Make<FusedConv>(geometry, BatchNormAttributes{}, true),
                      {in.x, in.gamma, in.beta, in.running_mean,
                       in.running_variance, in.w, in.residual}});
  for (const bool moments : {false, true}) {
    ExpectOnlyOwnTypes({Make<NormReluConv>(geometry, kEpsilon, false, moments),
                        {in.x, in.mean, in.variance, in.gamma, in.beta, in.w}});
    ExpectOnlyOwnTypes(
        {Make<NormReluConv>(geometry, kEpsilon, true, moments),
         {in.x, in.mean, in.variance, in.gamma, in.beta, in.w, in.residual}});
  }
  ExpectOnlyOwnTypes(
      {Make<NormReluConvGradWeight>(geometry, kEpsilon, in.w.spec),
       {in.x, in.mean, in.variance, in.gamma, in.beta, in.grad_y}});
  const std::vector<NamedInput> back = {in.grad_y,   in.w,     in.x,   in.mean,
                                        in.variance, in.gamma, in.beta};
  ExpectOnlyOwnTypes({Make<NormReluConvGradInput>(geometry, kEpsilon), back});
  ExpectOnlyOwnTypes({Make<NormReluConvGradSums>(geometry, kEpsilon), back});
  std::vector<NamedInput> rest = back;
  rest.push_back(in.grad_gamma);
  rest.push_back(in.grad_beta);
  ExpectOnlyOwnTypes(
      {Make<NormReluConvGradRest>(geometry, kEpsilon, false), rest});
  rest.push_back(in.other);
  ExpectOnlyOwnTypes(
      {Make<NormReluConvGradRest>(geometry, kEpsilon, true), rest});
}

TEST(Storage, ElementwiseOpsTakeF32AndNormalizationBytes) {
  const NamedInput x = {"x", Batch({2, 3, 4, 4})};
  const NamedInput grad_y = {"grad_y", x.spec};
  ExpectOnlyOwnTypes({Make<Add>(), {{"a", x.spec}, {"b", x.spec}}});
  ExpectOnlyOwnTypes({Make<Accumulate>(), {{"grad", Fixed({3})}}});
  ExpectOnlyOwnTypes(
      {Make<Accumulate>(1, kBatchAxis), {{"grad", Batch({2, 3})}}});
  ExpectOnlyOwnTypes({Make<Bias>(), {x, {"bias", Fixed({3})}}});
  ExpectOnlyOwnTypes({Make<BiasGrad>(), {grad_y}});
  ExpectOnlyOwnTypes({Make<Dropout>(0.5f, 0), {x}});
  const NamedInput images = {"images", Batch({2, 3, 4, 4}, DType::kU8)};
  const std::vector<float> scale(3, 1.0f), shift(3, 0.0f);
  ExpectOnlyOwnTypes({Make<Normalize>(scale, shift), {images}});
  ExpectOnlyOwnTypes({Make<ImageSlice>(1, 4, scale, shift), {images}});
}

TEST(Storage, ReluTakesF32AndItsGradientsMaskBits) {
  const NamedInput x = {"x", Batch({2, 6})}, grad_y = {"grad_y", x.spec};
  ExpectOnlyOwnTypes({Make<Relu>(), {x}});
  ExpectOnlyOwnTypes({Make<ReluWithMask>(), {x}});
  ExpectOnlyOwnTypes({Make<ReluGradFromOutput>(), {{"y", x.spec}, grad_y}});
  ExpectOnlyOwnTypes({Make<ReluGradFromMask>(),
                      {{"mask", Batch({2, 6}, DType::kBit)}, grad_y}});
}

TEST(Storage, PoolingAndShortcutsTakeF32AndWinnersAreBytes) {
  const NamedInput x = {"x", Batch({2, 3, 4, 4})};
  const NamedInput grad_y = {"grad_y", Batch({2, 3, 2, 2})};
  const NamedInput winner = {"winner", Batch({2, 3, 2, 2}, DType::kU8)};
  const Window window = {.kernel = 2, .stride = 2, .padding = 0};
  for (const bool with_winner : {false, true}) {
    ExpectOnlyOwnTypes({Make<MaxPool>(window, with_winner), {x}});
  }
  ExpectOnlyOwnTypes({Make<MaxPoolGrad>(window, x.spec), {winner, grad_y}});
  ExpectOnlyOwnTypes({Make<AveragePool>(window), {x}});
  ExpectOnlyOwnTypes({Make<AveragePoolGrad>(window, x.spec), {grad_y}});
  ExpectOnlyOwnTypes({Make<GlobalAveragePool>(), {x}});
  ExpectOnlyOwnTypes(
      {Make<GlobalAveragePoolGrad>(x.spec), {{"grad_y", Batch({2, 3})}}});
  const Shortcut shortcut(3, 2);
  ExpectOnlyOwnTypes({Make<Shortcut>(shortcut), {x}});
  ExpectOnlyOwnTypes(
      {Make<ShortcutGrad>(shortcut.ShapeOf(x.spec), x.spec), {grad_y}});
}

TEST(Storage, LossesTakeF32LogitsAndI32Labels) {
  const std::vector<NamedInput> rows = {{"logits", Batch({2, 5})},
                                        {"labels", Batch({2}, DType::kI32)}};
  ExpectOnlyOwnTypes({Make<SoftmaxCrossEntropy>(), rows});
  ExpectOnlyOwnTypes({Make<SoftmaxCrossEntropyGrad>(), rows});
}

TEST(Storage, LstmCellsTakeF32Only) {
  const NamedInput z = {"z", Batch({2, 8})}, gates = {"gates", z.spec};
  const NamedInput c_before = {"c_before", Batch({2, 2})};
  const NamedInput grad_h = {"grad_h", c_before.spec};
  const NamedInput grad_c = {"grad_c", c_before.spec};
  const auto first = std::make_shared<const LstmCell>(false, 1.0f);
  const auto later = std::make_shared<const LstmCell>(true, 1.0f);
  ExpectOnlyOwnTypes({first, {z}});
  ExpectOnlyOwnTypes({later, {z, c_before}});
  ExpectOnlyOwnTypes({Make<LstmCellTrain>(first), {z}});
  ExpectOnlyOwnTypes({Make<LstmCellTrain>(later), {z, c_before}});
  ExpectOnlyOwnTypes({Make<LstmCellGrad>(true, false, false), {gates, grad_h}});
  ExpectOnlyOwnTypes({Make<LstmCellGrad>(false, true, false), {gates, grad_c}});
  ExpectOnlyOwnTypes({Make<LstmCellGrad>(true, true, true),
                      {gates, grad_h, grad_c, c_before}});
}

TEST(Storage, CopiesTakeOneType) {
  for (const DType state : kDTypes) {
    const Case commit = {Make<Commit>(),
                         {{"state", {{3}, state}}, {"next", Fixed({3})}}};
    for (const DType next : kDTypes) {
      const Status status = AddTo(commit, Commit::kNext, next);
      ASSERT_EQ(status.ok(), next == state);
      if (status.ok()) continue;
      const std::string both = std::string("needs next stored as ") +
                               DTypeName(state) + ", got " + DTypeName(next);
      EXPECT_NE(status.message().find(both), std::string::npos)
          << status.message();
    }
  }
}

TEST(Storage, BlocksAndSparsityAreNotTakenForThePlainType) {
  ValueSpec w = Fixed({8, 6});
  w.storage.sparsity = Sparsity{.nonzeros = 9, .block = 1, .index_bits = 54};
  EXPECT_EQ(CheckStored("w", w, DType::kF32).message(),
            "needs w stored as f32, got f32, sparse [8, 6]");
  ValueSpec v = {{8, 6}, DType::kU8};
  v.storage.blocks = ValueBlocks{.values = 64, .scale = DType::kF16};
  EXPECT_EQ(CheckStored("v", v, DType::kU8).message(),
            "needs v stored as u8, got u8 in blocks of 64 [8, 6]");
}

TEST(Storage, BytesWhereF32IsNeededAreToBeNormalized) {
  const Status status =
      CheckStored("x", {{2, 3}, DType::kU8, kBatchAxis}, DType::kF32);
  EXPECT_EQ(status.message(),
            "needs x stored as f32, got u8 [2, 3]; normalize images first");
}

}  // namespace
}  // namespace thimble::ops
