// SPDX-License-Identifier: Apache-2.0
//
// FLOPs, scratch, in-place permissions and the order of gradients.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/op.h"
#include "kernels/conv/conv.h"
#include "kernels/matmul/matmul.h"
#include "kernels/softmax/softmax.h"
#include "ops/add.h"
#include "ops/batch_norm.h"
#include "ops/bias.h"
#include "ops/conv2d.h"
#include "ops/conv_geometry.h"
#include "ops/dropout.h"
#include "ops/fused_conv.h"
#include "ops/linear.h"
#include "ops/lstm_gates.h"
#include "ops/norm_relu_conv.h"
#include "ops/relu.h"
#include "ops/reshape.h"
#include "ops/shortcut.h"
#include "ops/softmax_cross_entropy.h"
#include "ops/test_specs.h"

namespace thimble::ops {
namespace {

// An op with the shapes that it is asked about.
struct Case {
  std::shared_ptr<const OpDef> def;
  std::vector<ValueSpec> inputs;

  std::vector<ValueSpec> outputs() const {
    const auto made = def->Infer(inputs);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? *made : std::vector<ValueSpec>{};
  }
  int64_t flops() const { return def->Flops(inputs, outputs()); }
  int64_t recompute() const { return def->RecomputeFlops(inputs, outputs()); }
  Workspace scratch() const { return def->Scratch(inputs, outputs()); }
};

template <typename T, typename... Args>
Case Of(std::vector<ValueSpec> inputs, Args&&... args) {
  return {std::make_shared<T>(std::forward<Args>(args)...), std::move(inputs)};
}

// 8 images of 3 x 6 x 6 to 4 channels of 3 x 3, each from 3 * 3 * 3 products:
// 8 * 4 * 9 * 27 multiply-adds.
constexpr int64_t kConvFlops = 2 * 8 * 4 * 9 * 27;
const ValueSpec kX = F32({8, 3, 6, 6});
const ValueSpec kW = F32({4, 3, 3, 3});
const ValueSpec kY = F32({8, 4, 3, 3});
const ValueSpec kC = F32({3});
const ConvGeometry kDown = {.stride = 2, .padding = 1};
const kernels::Conv2dShape kShape = kDown.ShapeOf(kX, kW);

TEST(Flops, OfConvolutionsAreTwoForEachProduct) {
  EXPECT_EQ(Of<Conv2d>({kX, kW}, 2, 1).flops(), kConvFlops);
  EXPECT_EQ(Of<Conv2dGradInput>({kY, kW}, kShape, kX).flops(), kConvFlops);
  EXPECT_EQ(Of<Conv2dGradWeight>({kX, kY}, kShape, kW).flops(), kConvFlops);
}

TEST(Flops, OfLinearAreTwoForEachProduct) {
  const ValueSpec x = F32({8, 5});
  const ValueSpec w = F32({3, 5});
  const ValueSpec y = F32({8, 3});
  EXPECT_EQ(Of<Linear>({x, w}).flops(), 2 * 8 * 5 * 3);
  EXPECT_EQ(Of<LinearGradInput>({y, w}).flops(), 2 * 8 * 5 * 3);
  EXPECT_EQ(Of<LinearGradWeight>({x, y}).flops(), 2 * 8 * 5 * 3);
}

TEST(Flops, OfSparseWeightsAreTwoForEachProductWithOneThatIsKept) {
  ValueSpec w = kW;  // 4 * 27 weights, at 8 * 9 places
  w.storage.sparsity = Sparsity{.kept = 10, .block = {1, 2}, .member = 0};
  const ValueSpec conv[] = {kX, w};
  EXPECT_EQ(Conv2d(2, 1).Flops(conv, {}), 2 * 20 * 8 * 9);
  const ValueSpec linear[] = {F32({8, 27}), w};
  EXPECT_EQ(Linear().Flops(linear, {}), 2 * 20 * 8);
}

TEST(Flops, OfAFusedConvolutionCountWhatItAppliesAndAdds) {
  const int64_t x = kX.shape.elements();
  const int64_t y = kY.shape.elements();
  const std::vector<ValueSpec> inputs = {kX, kC, kC, kC, kC, kW};
  // A multiply-add and a comparison for each element of x.
  EXPECT_EQ(Of<NormReluConv>(inputs, kDown, 1e-5f, false, false).flops(),
            kConvFlops + 3 * x);
  std::vector<ValueSpec> sum = inputs;
  sum.push_back(kY);
  EXPECT_EQ(Of<NormReluConv>(sum, kDown, 1e-5f, true, true).flops(),
            kConvFlops + 3 * x + y + 4 * y);
  // Its backward applies them again, which counts as recomputed.
  const Case grad_w =
      Of<NormReluConvGradWeight>({kX, kC, kC, kC, kC, kY}, kDown, 1e-5f, kW);
  EXPECT_EQ(grad_w.flops(), kConvFlops + 3 * x);
  EXPECT_EQ(grad_w.recompute(), 3 * x);
  EXPECT_EQ(Of<Conv2d>({kX, kW}, 2, 1).recompute(), 0);
}

TEST(Flops, ViewsAndShortcutsComputeNothing) {
  EXPECT_EQ(Of<Flatten>({kX}).flops(), 0);
  EXPECT_EQ(Of<Reshape>({kX}, Shape{8, 108}).flops(), 0);
  EXPECT_EQ(Of<Shortcut>({kX}, 4, 2).flops(), 0);
  EXPECT_EQ(Of<Add>({kX, kX}).flops(), kX.shape.elements());
}

TEST(Scratch, IsTheKernels) {
  EXPECT_EQ(Of<Conv2d>({kX, kW}, 2, 1).scratch(),
            kernels::Conv2dForwardWorkspace(kShape));
  EXPECT_EQ(Of<Conv2dGradInput>({kY, kW}, kShape, kX).scratch(),
            kernels::Conv2dGradInputWorkspace(kShape));
  EXPECT_EQ(Of<Conv2dGradWeight>({kX, kY}, kShape, kW).scratch(),
            kernels::Conv2dGradWeightWorkspace(kShape));
  const ValueSpec x = F32({8, 5});
  const ValueSpec w = F32({3, 5});
  const ValueSpec y = F32({8, 3});
  const kernels::LinearShape linear = {.in = 5, .out = 3};
  EXPECT_EQ(Of<Linear>({x, w}).scratch(),
            kernels::LinearForwardWorkspace(linear));
  EXPECT_EQ(Of<LinearGradInput>({y, w}).scratch(),
            kernels::LinearGradInputWorkspace(linear));
  EXPECT_EQ(Of<LinearGradWeight>({x, y}).scratch(),
            kernels::LinearGradWeightWorkspace(linear));
  EXPECT_EQ(
      Of<SoftmaxCrossEntropy>({F32({8, 10}), {{8}, DType::kI32, kBatchAxis}})
          .scratch(),
      kernels::SoftmaxCrossEntropyWorkspace(8));
  EXPECT_EQ(Of<Relu>({kX}).scratch(), Workspace{});
}

// Of a product whose tensors have types of their own: each must reach the
// kernel's question.
TEST(Scratch, OfProductsFollowsTheStorageOfTheirTensors) {
  const auto as = [](Shape shape, DType dtype) {
    return ValueSpec{shape, dtype};
  };
  const kernels::LinearShape shape = {.in = 300, .out = 400};
  const ValueSpec x = as({8, 300}, DType::kBF16), y = as({8, 400}, DType::kF16);
  const ValueSpec w = as({400, 300}, DType::kF32), b = as({400}, DType::kF32);
  const ValueSpec h = as({8, 100}, DType::kBF16);
  const ValueSpec w_h = as({400, 100}, DType::kF32);
  const auto scratch = [](const OpDef& op, std::vector<ValueSpec> inputs,
                          std::vector<ValueSpec> outputs) {
    return op.Scratch(inputs, outputs);
  };
  const Workspace forward = kernels::LinearForwardWorkspace(
      shape, {DType::kBF16, DType::kF32, DType::kF16});
  const Workspace weight = kernels::LinearGradWeightWorkspace(
      shape, {DType::kBF16, DType::kF16, DType::kF32});
  EXPECT_NE(forward, kernels::LinearForwardWorkspace(shape));
  EXPECT_NE(weight, kernels::LinearGradWeightWorkspace(shape));
  EXPECT_EQ(scratch(Linear(), {x, w}, {y}), forward);
  EXPECT_EQ(scratch(LinearGradInput(), {y, w}, {x}),
            kernels::LinearGradInputWorkspace(
                shape, {DType::kF16, DType::kF32, DType::kBF16}));
  EXPECT_EQ(scratch(LinearGradWeight(), {x, y}, {w}), weight);
  EXPECT_EQ(scratch(LstmGates(true), {x, w, b, h, w_h}, {y}), forward);
  EXPECT_EQ(scratch(LstmGatesGradWeight(true, false), {x, y, h}, {w, b, w_h}),
            weight);
}

TEST(Scratch, OfFusedFormsHasRoomForVectorsPerChannelBehindTheKernels) {
  const Workspace kernel = kernels::Conv2dGradWeightWorkspace(kShape);
  const Workspace fused =
      Of<NormReluConvGradWeight>({kX, kC, kC, kC, kC, kY}, kDown, 1e-5f, kW)
          .scratch();
  EXPECT_EQ(fused.per_thread, kernel.per_thread);
  EXPECT_GE(fused.shared, kernel.shared + 4 * 3 * sizeof(float));
}

// "input>output" of all permissions.
std::string InPlaceOf(const OpDef& def) {
  std::string text;
  for (const InPlacePair& pair : def.InPlace()) {
    if (!text.empty()) text += ' ';
    text += std::to_string(pair.input) + ">" + std::to_string(pair.output);
  }
  return text;
}

TEST(InPlace, PermissionsAreThoseThatKernelsKeep) {
  EXPECT_EQ(InPlaceOf(Relu()), "0>0");
  EXPECT_EQ(InPlaceOf(ReluGradFromOutput()), "1>0 0>0");
  EXPECT_EQ(InPlaceOf(ReluGradFromMask()), "1>0");
  EXPECT_EQ(InPlaceOf(Add()), "0>0 1>0");
  EXPECT_EQ(InPlaceOf(Bias()), "0>0");
  EXPECT_EQ(InPlaceOf(Dropout(0.5, 0)), "0>0");
  EXPECT_EQ(InPlaceOf(BatchNormTrain(1e-5f, 1)), "0>0");
  EXPECT_EQ(InPlaceOf(BatchNormGrad(1e-5f, false)), "");
  EXPECT_EQ(InPlaceOf(SoftmaxCrossEntropyGrad()), "0>0");
  EXPECT_EQ(InPlaceOf(LinearGradInput(true)), "2>0");
  // These read an element after others of it were written.
  EXPECT_EQ(InPlaceOf(Conv2d(1, 1)), "");
  EXPECT_EQ(InPlaceOf(Linear()), "");
  EXPECT_EQ(InPlaceOf(NormReluConv(kDown, 1e-5f, false, false)), "");
  EXPECT_EQ(InPlaceOf(NormReluConv(kDown, 1e-5f, true, false)), "6>0");
}

// Notes the names of what an op emits.
class NotingEmitter final : public Emitter {
 public:
  const Graph& graph() const override { return graph_; }
  std::vector<ValueId> Emit(std::string name, std::shared_ptr<const OpDef> def,
                            std::vector<ValueId> inputs, Role role) override {
    emitted.push_back(name);
    return *graph_.AddOp(std::move(name), std::move(def), std::move(inputs),
                         role);
  }
  void SetRole(ValueId value, Role role) override {
    graph_.SetRole(value, role);
  }
  ValuePair MomentsOf(ValueId) override { return {}; }
  void SetMoments(ValueId, ValuePair) override {}
  int64_t statistics_groups() const override { return 1; }
  void CommitAtUpdate(ValueId, ValueId) override {}

  ValueId Add(const ValueSpec& spec) {
    return graph_.AddValue("in", spec, Role::kActivation);
  }

  std::vector<std::string> emitted;

 private:
  Graph graph_;
};

// What the gradient of an op of two inputs emits, where `wanted` of them are.
std::vector<std::string> Emitted(const OpDef& def, const ValueSpec& x,
                                 const ValueSpec& w, const ValueSpec& y,
                                 const std::array<bool, 2>& wanted) {
  NotingEmitter emit;
  const std::string name = "layer";
  const std::vector<ValueId> inputs = {emit.Add(x), emit.Add(w)};
  const std::vector<ValueId> outputs = {emit.Add(y)};
  const std::vector<ValueId> grad_outputs = {emit.Add(y)};
  const std::vector<ValueId> pending(2);
  std::vector<ValueId> grad_inputs(2);
  std::array<bool, 2> folded = {false, false};
  GradientContext context{emit,         name,   inputs,  outputs,     {},
                          grad_outputs, wanted, pending, grad_inputs, folded};
  def.Gradient(context);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(grad_inputs[i].valid(), wanted[i]) << i;
    if (!wanted[i]) continue;
    EXPECT_EQ(emit.graph().value(grad_inputs[i]).spec.shape,
              (i == 0 ? x : w).shape);
  }
  return emit.emitted;
}

TEST(Gradient, OfWeightsComesBeforeThatOfTheInputAndOnlyIfWanted) {
  using Names = std::vector<std::string>;
  const Names both = {"layer.grad_w", "layer.grad_x"};
  const Conv2d conv(2, 1);
  EXPECT_EQ(Emitted(conv, kX, kW, kY, {true, true}), both);
  EXPECT_EQ(Emitted(conv, kX, kW, kY, {false, true}), Names({both[0]}));
  EXPECT_EQ(Emitted(conv, kX, kW, kY, {true, false}), Names({both[1]}));
  const Linear linear;
  const ValueSpec x = F32({8, 5});
  const ValueSpec w = F32({3, 5});
  const ValueSpec y = F32({8, 3});
  EXPECT_EQ(Emitted(linear, x, w, y, {true, true}), both);
  EXPECT_EQ(Emitted(linear, x, w, y, {false, true}), Names({both[0]}));
}

}  // namespace
}  // namespace thimble::ops
