// SPDX-License-Identifier: Apache-2.0
#include "optim/adam.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "graph/op.h"

namespace thimble::optim {
namespace {

// Adds an update of these values to a graph of its own.
Status AddAdamUpdate(const std::vector<ValueSpec>& specs) {
  Graph graph;
  std::vector<ValueId> inputs;
  for (const ValueSpec& spec : specs) {
    inputs.push_back(graph.AddValue("v", spec, Role::kActivation));
  }
  return graph.AddOp("update", Adam()->UpdateOp(0), std::move(inputs)).status();
}

bool Says(const Status& status, const std::string& text) {
  return status.code() == StatusCode::kUsage &&
         status.message().find(text) != std::string::npos;
}

TEST(Adam, TakesWhatItsOwnStateIs) {
  for (const DType param : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const Storage& state : {Storage(DType::kF32), Storage(DType::kF16),
                                 Storage(DType::kBF16), U8InBlocks()}) {
      const ValueSpec w{{4, 3}, param};
      std::vector<ValueSpec> specs = {w, {{4, 3}, DType::kBF16}};
      for (const auto& kept : Adam({.state = state})->StateOf(w)) {
        EXPECT_EQ(kept.init.value, 0.0f);
        specs.push_back(kept.spec);
      }
      EXPECT_EQ(specs.size(), state == DType::kF16 ? 6u : 4u);
      EXPECT_TRUE(AddAdamUpdate(specs).ok());
    }
  }
}

TEST(Adam, ScalesMomentsOfSparseWeightsToo) {
  ValueSpec w{{4, 3}, DType::kF16};
  w.storage.sparsity = Sparsity{.kept = 5, .block = {}, .member = 0};
  std::vector<ValueSpec> specs = {w, w};
  for (const auto& kept : Adam()->StateOf(w)) specs.push_back(kept.spec);
  ASSERT_EQ(specs.size(), 6u);
  EXPECT_EQ(specs[2].storage.sparsity, w.storage.sparsity);
  EXPECT_FALSE(specs[4].storage.sparsity.has_value());
  EXPECT_TRUE(AddAdamUpdate(specs).ok());
}

TEST(Adam, RefusesOtherStoragesAndShapes) {
  const ValueSpec w{{4, 3}, DType::kF32}, half{{4, 3}, DType::kF16};
  const ValueSpec scale{{1}, DType::kF32};
  EXPECT_TRUE(Says(AddAdamUpdate({w, w, w, half}),
                   "needs second moment stored as f32, got f16"));
  EXPECT_TRUE(Says(AddAdamUpdate({w, w, half, half}),
                   "moments stored as f16 have 2 scales, got 0"));
  EXPECT_TRUE(Says(AddAdamUpdate({w, w, w, w, scale, scale}),
                   "moments stored as f32 have 0 scales, got 2"));
  EXPECT_TRUE(Says(AddAdamUpdate({w, w, half, half, scale, w}),
                   "a moment's scale is one number, got [4, 3]"));
  EXPECT_TRUE(Says(AddAdamUpdate({w, w, half, half, {{1}, DType::kF16}, scale}),
                   "needs a moment's scale stored as f32, got f16"));
  EXPECT_TRUE(Says(AddAdamUpdate({w, {{3, 4}, DType::kF32}, w, w}),
                   "needs values of one shape, got [4, 3] and [3, 4]"));
  const char* names[] = {"parameter", "gradient", "first moment",
                         "second moment"};
  for (size_t k = 0; k < 4; ++k) {
    std::vector<ValueSpec> specs(4, w);
    specs[k].storage = DType::kI32;
    EXPECT_TRUE(Says(AddAdamUpdate(specs),
                     std::string("needs ") + names[k] + " stored as f32"));
  }
}

TEST(Adam, KeepsMomentsOfVectorsInF32) {
  const auto state = Adam({.state = DType::kF16})->StateOf({{7}, DType::kBF16});
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state[0].name, "first_moment");
  EXPECT_EQ(state[1].name, "second_moment");
  for (const auto& kept : state) EXPECT_EQ(kept.spec.storage, DType::kF32);
}

TEST(Adam, RefusesWhatCannotBe) {
  EXPECT_TRUE(Adam()->Check().ok());
  EXPECT_TRUE(Adam({.beta1 = 0, .beta2 = 0})->Check().ok());
  EXPECT_TRUE(Says(Adam({.beta1 = 1})->Check(), "beta1"));
  EXPECT_TRUE(Says(Adam({.beta2 = -0.1})->Check(), "beta2"));
  EXPECT_TRUE(Says(Adam({.epsilon = 0})->Check(), "epsilon"));
  EXPECT_TRUE(Says(Adam({.epsilon = 1e-60})->Check(), "epsilon"));
  EXPECT_TRUE(Says(Adam({.weight_decay = -1})->Check(), "weight decay"));
  EXPECT_TRUE(
      Says(Adam({.rounding = Rounding::kFeedback})->Check(), "stochastic"));
  EXPECT_TRUE(Says(Adam({.state = DType::kBit})->Check(), "f32, f16, bf16"));
}

TEST(Adam, TellsEverySettingThatDecidesBits) {
  const AdamOptions base;
  EXPECT_EQ(Adam()->Settings().size(), 5u);
  std::vector<AdamOptions> others(7, base);
  others[0].beta1 = 0.8;
  others[1].beta2 = 0.98;
  others[2].epsilon = 1e-6;
  others[3].weight_decay = 0.1;
  others[4].decoupled = true;
  others[5].rounding = Rounding::kStochastic;
  others[6].state = DType::kBF16;
  for (const AdamOptions& other : others) {
    EXPECT_NE(Adam(other)->Settings(), Adam(base)->Settings());
  }
  EXPECT_NE(Adam({.decoupled = true})->name(), Adam()->name());
  // An op differs by all but the storage, which its inputs say.
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NE(Adam(others[i])->UpdateOp(0)->Attributes(),
              Adam(base)->UpdateOp(0)->Attributes());
  }
}

}  // namespace
}  // namespace thimble::optim
