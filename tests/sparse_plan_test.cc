// SPDX-License-Identifier: Apache-2.0
//
// Plans with sparse weights: what lies in a pool, what it takes, and what is
// refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "thimble/model.h"
#include "thimble/plan.h"
#include "thimble/sparse_weights.h"

namespace thimble {
namespace {

Model ModelOf(const std::string& name, int64_t batch) {
  auto model = BuildModel(
      name,
      {.batch = batch, .images = {.channels = 3, .height = 32, .width = 32}});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

std::map<std::string, ValueId> ValuesByName(const Plan& plan) {
  std::map<std::string, ValueId> values;
  for (uint32_t i = 0; i < plan.graph().values().size(); ++i) {
    values[plan.graph().values()[i].name] = {i};
  }
  return values;
}

TEST(SparsePlan, HasOneBufferForAllWeightsAndOneForEachThingThatFollowsThem) {
  const Model model = ModelOf("wrn-10-1", 20);
  for (const int64_t microbatch : {int64_t{0}, int64_t{10}}) {
    const auto plan = MakePlan(model, {.precision = Precision::All(DType::kF16),
                                       .sparse = {.nonzero = 0.3},
                                       .microbatch = microbatch});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    ASSERT_TRUE(ValidatePlan(*plan).ok());
    const SparsePool& pool = *plan->sparse();
    // Six convolutions of blocks; the stem and the last layer are dense.
    ASSERT_EQ(pool.members.size(), 6u);
    int64_t kept = 0, all = 0;
    for (uint32_t m = 0; m < pool.members.size(); ++m) {
      const ParameterState& p = plan->parameters()[pool.members[m]];
      const Value& weight = plan->graph().value(p.parameter);
      EXPECT_NE(weight.name.find(".conv"), std::string::npos) << weight.name;
      EXPECT_EQ(weight.spec.storage.sparsity->member, m);
      kept += weight.spec.kept();
      all += weight.spec.shape.elements();
      ASSERT_EQ(p.state.size(), 1u);
      for (const auto& [value, of] : {std::pair(p.parameter, pool.parameters),
                                      std::pair(p.gradient, pool.gradients),
                                      std::pair(p.state[0], pool.state[0])}) {
        EXPECT_EQ(plan->PoolOf(value), of);
        EXPECT_EQ(&plan->BufferOf(value), &plan->BufferOf(of));
        EXPECT_EQ(plan->graph().value(value).spec.storage.sparsity,
                  weight.spec.storage.sparsity);
      }
    }
    EXPECT_EQ(kept, pool.layout.kept());
    EXPECT_NEAR(static_cast<double>(kept), 0.3 * static_cast<double>(all), 6);
    const auto padded = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
    for (ValueId v : {pool.parameters, pool.gradients, pool.state[0]}) {
      EXPECT_EQ(plan->BufferOf(v).bytes,
                static_cast<size_t>(padded(2 * pool.layout.kept())));
    }
    EXPECT_EQ(plan->BufferOf(pool.index).bytes,
              static_cast<size_t>(
                  padded(static_cast<int64_t>(pool.layout.index_bytes()))));
    // A bit for each place takes less than eleven for each that is kept.
    EXPECT_EQ(pool.layout.codec(), IndexCodec::kBitmap);
    EXPECT_EQ(plan->ParameterCount(), model.graph.ParameterCount());
    // Gradients need no room in evaluation.
    EXPECT_LT(plan->BufferOf(pool.gradients).live.end, plan->schedule().size());
  }
}

TEST(SparsePlan, IsValidWithEveryStrategyAndStorage) {
  const Model model = ModelOf("wrn-10-1", 8);
  int plans = 0;
  for (const char* strategy : {"none", "residual-2*", "sqrt", "auto"}) {
    for (const int64_t microbatch : {0, 4}) {
      for (const bool keeps : {true, false}) {
        for (const auto& state : {Storage(DType::kF16), U8InBlocks()}) {
          for (const WeightBlock block :
               {WeightBlock{1, 1}, WeightBlock{2, 2}}) {
            Precision precision = Precision::All(DType::kF16);
            precision.keeps_gradients = keeps;
            if (keeps && state != DType::kF16) precision.gradients = state;
            const auto plan = MakePlan(
                model, {.optimizer =
                            Sgd({.nesterov = microbatch == 0, .state = state}),
                        .precision = precision,
                        .sparse = {.nonzero = 0.2, .block = block},
                        .threads = 2,
                        .microbatch = microbatch,
                        .recompute = strategy,
                        .two_pass = keeps});
            ASSERT_TRUE(plan.ok()) << plan.status().message();
            const Status valid = ValidatePlan(*plan);
            EXPECT_TRUE(valid.ok()) << strategy << ": " << valid.message();
            EXPECT_EQ(plan->sparse()->gradients.valid(), keeps);
            ++plans;
          }
        }
      }
    }
  }
  EXPECT_EQ(plans, 64);
}

// The paper's table, in real bytes: everything that is allocated, with two
// threads.
TEST(SparsePlan, OfWrn28KeepsThePapersTable) {
  struct Row {
    double nonzero;
    int64_t microbatch;
    uint64_t packed, smallest;  // bytes
  };
  const Model model = ModelOf("wrn-28-2", 100);
  for (const Row& row :
       {Row{0.3, 10, 6'700'000, 5'850'000}, Row{0.2, 10, 5'600'000, 4'950'000},
        Row{0.2, 4, 3'600'000, 3'370'000}, Row{0.1, 4, 2'500'000, 2'480'000}}) {
    for (const bool is_packed : {true, false}) {
      PlanOptions options = {.precision = Precision::All(DType::kF16),
                             .sparse = {.nonzero = row.nonzero},
                             .threads = 2,
                             .microbatch = row.microbatch,
                             .recompute = "auto",
                             .budget = is_packed ? row.packed : row.smallest};
      if (is_packed) options.sparse.index = IndexCodec::kPacked;
      const auto plan = MakePlan(model, options);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      EXPECT_TRUE(ValidatePlan(*plan).ok());
      const double ratio =
          static_cast<double>(plan->flops_step()) /
          static_cast<double>(plan->flops_step() - plan->flops_recompute());
      EXPECT_LE(ratio, 1.30) << row.nonzero << " " << row.microbatch;
    }
  }
}

TEST(SparsePlan, SparseWeightsMakeLessWork) {
  const Model model = ModelOf("wrn-10-1", 8);
  const auto dense = MakePlan(model, {});
  const auto sparse = MakePlan(model, {.sparse = {.nonzero = 0.25}});
  ASSERT_TRUE(dense.ok() && sparse.ok());
  EXPECT_LT(sparse->flops_step(), dense->flops_step() * 3 / 10);
}

TEST(SparsePlan, WeightsAreChosenByName) {
  const Model model = ModelOf("wrn-10-1", 8);
  const auto plan = MakePlan(
      model, {.sparse = {.nonzero = 0.5,
                         .weights = {"stage2.*.conv2.weight", "stem*"}}});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const auto values = ValuesByName(*plan);
  for (const uint32_t m : plan->sparse()->members) {
    const std::string& name =
        plan->graph().value(plan->parameters()[m].parameter).name;
    EXPECT_TRUE(name == "stem.weight" || name == "stage2.block1.conv2.weight")
        << name;
  }
  EXPECT_EQ(plan->sparse()->members.size(), 2u);
  EXPECT_TRUE(values.contains("sparse.velocity"));
}

// All of the paper's set: what has two dimensions but the taps of its dynamic
// convolutions.
TEST(SparsePlan, AModelSaysWhichWeightsWhereNobodyElseDoes) {
  const Model model = ModelOf("dynamicconv-iwslt", 250);
  // The networks that are planned are copies: of another batch, of fused ops.
  for (const int64_t microbatch : {0, 50}) {
    const auto plan = MakePlan(model, {.precision = Precision::All(DType::kF16),
                                       .sparse = {.nonzero = 0.3},
                                       .microbatch = microbatch,
                                       .fuse = microbatch == 0});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    const SparsePool& pool = *plan->sparse();
    int64_t values = 0;
    for (const uint32_t m : pool.members) {
      const Value& weight =
          plan->graph().value(plan->parameters()[m].parameter);
      EXPECT_EQ(weight.name.find("taps"), std::string::npos) << weight.name;
      values += weight.spec.shape.elements();
    }
    EXPECT_EQ(values, 38'060'032);
    // Three embeddings, four matrices in each encoder's layer, eight in each
    // decoder's.
    EXPECT_EQ(pool.members.size(), 3u + 7u * 4u + 6u * 8u);
    EXPECT_NEAR(static_cast<double>(pool.layout.kept()),
                0.3 * static_cast<double>(values), 79);
  }
  const auto named = MakePlan(
      model, {.sparse = {.nonzero = 0.3, .weights = {"*.taps.weight"}}});
  ASSERT_TRUE(named.ok()) << named.status().message();
  EXPECT_EQ(named->sparse()->members.size(), 7u + 6u);
}

TEST(SparsePlan, WhatCannotBeIsRefusedWithAWord) {
  const auto refused = [](const Model& model, const SparseWeights& sparse) {
    const auto plan = MakePlan(model, {.sparse = sparse});
    return plan.ok() ? std::string("planned") : plan.status().message();
  };
  const Model wrn = ModelOf("wrn-10-1", 8);
  EXPECT_EQ(
      refused(wrn, {.nonzero = 0}),
      "the share of nonzero weights must be above 0 and at most 1, got 0");
  EXPECT_EQ(refused(wrn, {.block = {2, 2}}).substr(0, 38),
            "blocks, index and names of sparse weig");
  EXPECT_EQ(refused(wrn, {.nonzero = 0.3, .block = {0, 1}}).substr(0, 45),
            "blocks of 0 outputs by 1 inputs are not possi");
  EXPECT_EQ(
      refused(wrn, {.nonzero = 0.3, .block = {2, 2}, .weights = {"stem*"}})
          .substr(0, 70),
      "'stem.weight': blocks of 2 outputs by 2 inputs do not divide a weight ");
  EXPECT_EQ(refused(wrn, {.nonzero = 0.3, .weights = {"conv"}}).substr(0, 50),
            "no weight is called 'conv' (SparseWeights::weights");
  EXPECT_EQ(refused(wrn, {.nonzero = 0.3, .weights = {"*running_mean"}})
                .substr(0, 19),
            "no weight is called");
}

}  // namespace
}  // namespace thimble
