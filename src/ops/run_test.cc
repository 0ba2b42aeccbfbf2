// SPDX-License-Identifier: Apache-2.0
//
// What ops make of a run's numbers and of the storage that they are given,
// where no plan asks for it.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "ops/accumulate.h"
#include "ops/bound_op.h"
#include "ops/gradient_out.h"
#include "ops/softmax_cross_entropy.h"

namespace thimble::ops {
namespace {

TEST(Run, LossScaleMultipliesTheGradientOfTheLogits) {
  const ValueSpec logits_spec{{2, 3}, DType::kF32, kBatchAxis};
  const ValueSpec labels_spec{{2}, DType::kI32, kBatchAxis};
  std::vector<float> logits = {0.5f, -1.0f, 2.0f, 0.0f, 3.0f, -0.25f};
  std::vector<int32_t> labels = {1, 2};
  const std::unique_ptr<ThreadPool> pool = *ThreadPool::Create(1);
  const auto gradient = [&](const RunContext& run) {
    std::vector<float> grad(logits.size());
    const BoundValue inputs[] = {
        {&logits_spec, reinterpret_cast<std::byte*>(logits.data())},
        {&labels_spec, reinterpret_cast<std::byte*>(labels.data())}};
    const BoundValue outputs[] = {
        {&logits_spec, reinterpret_cast<std::byte*>(grad.data())}};
    SoftmaxCrossEntropyGrad().Run(
        {.inputs = inputs, .outputs = outputs, .kernel = {.pool = pool.get()}},
        run);
    return grad;
  };
  RunContext run{.axes = AxisParts{AxisPart{.count = 2, .total = 2}}};
  const std::vector<float> plain = gradient(run);
  run.loss_scale = 1000.0f;
  const std::vector<float> scaled = gradient(run);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_NE(plain[i], 0.0f);
    EXPECT_EQ(scaled[i], plain[i] * 1000.0f);
  }
}

// The first microbatch is copied, the second added; 257 takes nine bits, one
// more than bf16 has.
TEST(Run, SumsOfGradientsMayBeStoredInAnotherType) {
  const ValueSpec grad_spec{{3}, DType::kF32};
  const ValueSpec sum_spec{{3}, DType::kBF16};
  std::vector<float> grad = {1.0f, -2.5f, 257.0f};
  std::vector<uint16_t> sum(3);
  const std::unique_ptr<ThreadPool> pool = *ThreadPool::Create(1);
  const BoundValue inputs[] = {
      {&grad_spec, reinterpret_cast<std::byte*>(grad.data())}};
  const BoundValue outputs[] = {
      {&sum_spec, reinterpret_cast<std::byte*>(sum.data())}};
  const BoundOp op{.inputs = inputs,
                   .outputs = outputs,
                   .carried = 1,
                   .kernel = {.pool = pool.get()}};
  Accumulate().Run(op, {});
  EXPECT_EQ(sum, (std::vector<uint16_t>{0x3F80, 0xC020, 0x4380}));
  Accumulate().Run(op, {.accumulate = true});  // 256 + 257 = 513 becomes 512
  EXPECT_EQ(sum, (std::vector<uint16_t>{0x4000, 0xC0A0, 0x4400}));
}

// What is added at different images of a step is rounded by different numbers.
TEST(Run, GradientsRandomNumbersAreOthersForEachImageAndStep) {
  const RunContext run = {.seed = 3, .step = 9};
  const kernels::RandomAddress first = GradientRandom(run, 0, 5);
  EXPECT_EQ(first.step, 9u);
  EXPECT_EQ(first.stream, 5u);
  std::set<uint64_t> steps = {first.step, 10};
  for (const int64_t image : {int64_t{1}, int64_t{50}, int64_t{4000000000}}) {
    EXPECT_TRUE(steps.insert(GradientRandom(run, image, 5).step).second);
  }
}

}  // namespace
}  // namespace thimble::ops
