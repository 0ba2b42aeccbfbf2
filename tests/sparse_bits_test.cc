// SPDX-License-Identifier: Apache-2.0
//
// Training with sparse weights that are rewired on the way gives the same
// weights, bit for bit, however it is planned, whatever the number of threads
// and however the index is stored.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/test_folder.h"
#include "few_records.h"
#include "sparse_pattern.h"
#include "store/safetensors.h"
#include "thimble/data.h"
#include "thimble/model.h"
#include "thimble/plan.h"
#include "thimble/trainer.h"

namespace thimble::testing {
namespace {

struct Case {
  const char* name;
  SparseWeights sparse;
  DType dtype = DType::kF32;
  int64_t microbatch = 0;
  RewiringOptions rewiring = {.every = 2};
  std::shared_ptr<const Optimizer> optimizer =
      Sgd({.weight_decay = 1e-4f, .nesterov = true});
  // Where gradients are not stored as the rest is.
  std::optional<Storage> gradients = std::nullopt;
  bool keeps_gradients = true;
  int64_t rewirings = 2;
};

class SparseBits : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr int64_t kBatch = 10;
  static constexpr int64_t kSteps = 5;  // an epoch and one

  void SetUp() override {
    auto colour = OpenDataset("synthetic-cifar", {});
    ASSERT_TRUE(colour.ok());
    data_ = std::make_unique<FewRecords>(
        *std::move(colour), FewRecords::Sizes{.train = 40, .test = 10});
    auto model = BuildModel(
        "wrn-10-1", {.batch = kBatch,
                     .images = {.channels = 3, .height = 32, .width = 32}});
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = std::make_unique<Model>(*std::move(model));
    options_.optimizer = GetParam().optimizer;
    options_.precision = Precision::All(GetParam().dtype);
    options_.precision.keeps_gradients = GetParam().keeps_gradients;
    if (GetParam().gradients.has_value()) {
      options_.precision.gradients = *GetParam().gradients;
    }
    options_.sparse = GetParam().sparse;
    options_.microbatch = GetParam().microbatch;
  }

  Plan Planned(const PlanOptions& options) {
    auto plan = MakePlan(*model_, options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_TRUE(ValidatePlan(*plan).ok());
    return *std::move(plan);
  }

  TrainSummary Trained(const Plan& plan, TrainOptions train = {}) {
    train.steps = kSteps;
    train.learning_rate = 0.05;
    train.rewiring = GetParam().rewiring;
    if (GetParam().dtype == DType::kF16) {
      train.loss_scale = "1024";
    }
    const auto summary = Train(plan, *data_, train, nullptr, {});
    EXPECT_TRUE(summary.ok()) << summary.status().message();
    if (!summary.ok()) return {};
    EXPECT_EQ(summary->rewirings, GetParam().rewirings);
    return *summary;
  }

  std::string WeightsOf(const PlanOptions& options) {
    return Trained(Planned(options)).weights_sha256;
  }

  std::unique_ptr<FewRecords> data_;
  std::unique_ptr<Model> model_;
  PlanOptions options_;
};

TEST_P(SparseBits, AreTheSameForEveryPlanAndNumberOfThreads) {
  const Plan plan = Planned(options_);
  const std::string weights = Trained(plan).weights_sha256;
  ASSERT_EQ(weights.size(), 64u);
  const auto expect_same = [&](const char* what, const auto& change) {
    PlanOptions options = options_;
    change(options);
    EXPECT_EQ(WeightsOf(options), weights) << what;
  };
  EXPECT_EQ(Trained(plan, {.poison = true}).weights_sha256, weights);
  expect_same("2 threads", [](PlanOptions& o) { o.threads = 2; });
  expect_same("3 threads", [](PlanOptions& o) { o.threads = 3; });
  expect_same("inplace off", [](PlanOptions& o) { o.inplace = false; });
  expect_same("sharing off", [](PlanOptions& o) { o.sharing = false; });
  expect_same("two passes", [](PlanOptions& o) { o.two_pass = true; });
  for (const char* strategy : {"residual-2*", "sqrt", "recursive-1"}) {
    expect_same(strategy, [&](PlanOptions& o) { o.recompute = strategy; });
  }
  expect_same("auto", [&](PlanOptions& o) {
    o.recompute = "auto";
    o.budget = plan.arena_bytes() * 85 / 100;
  });
  EXPECT_NE(Trained(plan, {.seed = 2}).weights_sha256, weights);
}

// The weights that a run of this plan wrote; of the index, what it says.
struct Written {
  std::vector<std::string> values;
  std::vector<std::vector<size_t>> places;
};

TEST_P(SparseBits, AreTheSameForEveryIndex) {
  const auto written = [&](IndexCodec codec) {
    PlanOptions options = options_;
    options.sparse.index = codec;
    const Plan plan = Planned(options);
    const TestFolder folder;
    const TrainSummary summary = Trained(plan, {.out_dir = folder.File("run")});
    Written all;
    const auto reader = SafetensorsReader::Open(summary.weights_path);
    EXPECT_TRUE(reader.ok()) << reader.status().message();
    for (const SafetensorsReader::Tensor& tensor : reader->tensors()) {
      std::vector<std::byte> bytes(tensor.bytes);
      EXPECT_TRUE(reader->ReadTensor(tensor.info.name, bytes).ok());
      if (tensor.info.name != "sparse.index") {
        all.values.emplace_back(reinterpret_cast<const char*>(bytes.data()),
                                bytes.size());
        continue;
      }
      const PoolLayout& layout = plan.sparse()->layout;
      EXPECT_TRUE(CheckIndex(layout, bytes).ok());
      for (size_t m = 0; m < layout.size(); ++m) {
        const ValueId v =
            plan.parameters()[plan.sparse()->members[m]].parameter;
        all.places.push_back(PlacesOf(layout.Of(bytes.data(), m),
                                      plan.graph().value(v).spec.shape));
      }
    }
    return all;
  };
  const Written packed = written(IndexCodec::kPacked);
  const Written bitmap = written(IndexCodec::kBitmap);
  EXPECT_EQ(packed.places.size(), 6u);
  EXPECT_EQ(packed.places, bitmap.places);
  EXPECT_TRUE(packed.values == bitmap.values);
}

constexpr WeightBlock kSquare = {2, 2};
constexpr RewiringOptions kSet = {
    .method = RewireMethod::kSet, .every = 2, .reset = StateReset::kNewBlocks};

const Case kCases[] = {
    {.name = "f32", .sparse = {.nonzero = 0.3}},
    {.name = "f32_in_parts", .sparse = {.nonzero = 0.1}, .microbatch = 5},
    {.name = "f32_blocks",
     .sparse = {.nonzero = 0.3, .block = kSquare},
     .rewiring = kSet},
    {.name = "f32_fixed",
     .sparse = {.nonzero = 0.3},
     .rewiring = {.method = std::nullopt},
     .rewirings = 0},
    {.name = "f32_adam",
     .sparse = {.nonzero = 0.3},
     .rewiring = {.every = 2, .reset = StateReset::kNewBlocks},
     .optimizer = Adam()},
    {.name = "f16",
     .sparse = {.nonzero = 0.2},
     .dtype = DType::kF16,
     .rewiring = {.every = 2, .prune = 0.1, .reset = StateReset::kNewBlocks}},
    {.name = "f16_blocks_in_parts_all_in_u8",
     .sparse = {.nonzero = 0.2, .block = kSquare},
     .dtype = DType::kF16,
     .microbatch = 5,
     .rewiring = {.method = RewireMethod::kSet, .every = 2},
     .optimizer = Sgd({.nesterov = true, .state = U8InBlocks()}),
     .gradients = U8InBlocks()},
    {.name = "f16_without_gradients",
     .sparse = {.nonzero = 0.2},
     .dtype = DType::kF16,
     .microbatch = 5,
     .optimizer = Sgd({.state = U8InBlocks()}),
     .keeps_gradients = false},
    {.name = "f16_adam",
     .sparse = {.nonzero = 0.3},
     .dtype = DType::kF16,
     .optimizer = Adam()},
    {.name = "bf16",
     .sparse = {.nonzero = 0.3},
     .dtype = DType::kBF16,
     .rewiring = kSet,
     .optimizer = Sgd({.rounding = Rounding::kStochastic})},
    {.name = "bf16_in_parts",
     .sparse = {.nonzero = 0.1},
     .dtype = DType::kBF16,
     .microbatch = 5,
     .optimizer = Sgd({.rounding = Rounding::kFeedback})},
    {.name = "bf16_blocks_without_gradients",
     .sparse = {.nonzero = 0.3, .block = kSquare},
     .dtype = DType::kBF16,
     .rewiring = kSet,
     .optimizer = Sgd({.rounding = Rounding::kStochastic}),
     .keeps_gradients = false},
    {.name = "bf16_adam_u8",
     .sparse = {.nonzero = 0.3},
     .dtype = DType::kBF16,
     .microbatch = 5,
     .optimizer =
         Adam({.rounding = Rounding::kStochastic, .state = U8InBlocks()}),
     .gradients = U8InBlocks()},
};

INSTANTIATE_TEST_SUITE_P(Cases, SparseBits, ::testing::ValuesIn(kCases),
                         [](const auto& test) {
                           return std::string(test.param.name);
                         });

}  // namespace
}  // namespace thimble::testing
