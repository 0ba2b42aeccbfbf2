// SPDX-License-Identifier: Apache-2.0
#include "optim/sgd.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "graph/op.h"

namespace thimble::optim {
namespace {

// Adds an update of three values to a graph of its own.
Status AddUpdate(const std::vector<ValueSpec>& specs) {
  Graph graph;
  std::vector<ValueId> inputs;
  for (const ValueSpec& spec : specs) {
    inputs.push_back(graph.AddValue("v", spec, Role::kActivation));
  }
  return graph.AddOp("update", Sgd()->UpdateOp(0), std::move(inputs)).status();
}

TEST(Sgd, TakesFloatsOfOneShapeEachInItsOwnStorage) {
  const ValueSpec w{{4, 3}, DType::kF32};
  EXPECT_TRUE(AddUpdate({w, w}).ok());
  EXPECT_TRUE(AddUpdate({w, w, w}).ok());
  EXPECT_FALSE(AddUpdate({w, {{3, 4}, DType::kF32}, w}).ok());
  const char* names[] = {"parameter", "gradient", "velocity"};
  for (size_t k = 0; k < 3; ++k) {
    std::vector<ValueSpec> specs(3, w);
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      specs[k].storage = dtype;
      EXPECT_TRUE(AddUpdate(specs).ok());
    }
    // Parameters are not in blocks.
    specs[k].storage = U8InBlocks();
    EXPECT_EQ(AddUpdate(specs).ok(), k > 0);
    const char* taken =
        k > 0 ? "f32, f16, bf16 or u8 in blocks of 64" : "f32, f16 or bf16";
    for (const DType dtype : {DType::kU8, DType::kI32, DType::kBit}) {
      specs[k].storage = dtype;
      const std::string message = AddUpdate(specs).message();
      const std::string wanted = std::string("needs ") + names[k] +
                                 " stored as " + taken + ", got " +
                                 DTypeName(dtype);
      EXPECT_NE(message.find(wanted), std::string::npos) << message;
    }
  }
}

TEST(Sgd, KeepsAVelocityWhereThereIsMomentum) {
  const ValueSpec w{{4, 3}, DType::kF32};
  ASSERT_EQ(Sgd()->StateOf(w).size(), 1u);
  EXPECT_EQ(Sgd()->StateOf(w)[0].name, "velocity");
  EXPECT_EQ(Sgd()->StateOf(w)[0].spec.shape, w.shape);
  EXPECT_TRUE(Sgd({.momentum = 0})->StateOf(w).empty());
}

TEST(Sgd, StateIsStoredAsTheParameterUnlessSaidAndOfVectorsInF32) {
  const ValueSpec w{{4, 3}, DType::kF16};
  const ValueSpec b{{4}, DType::kF16};
  EXPECT_EQ(Sgd()->StateOf(w)[0].spec.storage, DType::kF16);
  EXPECT_EQ(Sgd()->StateOf(b)[0].spec.storage, DType::kF32);
  const auto bf16 = Sgd({.state = DType::kBF16});
  EXPECT_EQ(bf16->StateOf(w)[0].spec.storage, DType::kBF16);
  EXPECT_EQ(bf16->StateOf(b)[0].spec.storage, DType::kF32);
  EXPECT_TRUE(bf16->Check().ok());
  EXPECT_TRUE(Sgd({.state = U8InBlocks()})->Check().ok());
  const Status status = Sgd({.state = DType::kI32})->Check();
  EXPECT_EQ(status.code(), StatusCode::kUsage);
  EXPECT_NE(status.message().find("f32, f16, bf16"), std::string::npos)
      << status.message();
}

TEST(Sgd, FeedbackNeedsAMomentum) {
  EXPECT_TRUE(Sgd({.rounding = Rounding::kFeedback})->Check().ok());
  const Status status =
      Sgd({.momentum = 0, .rounding = Rounding::kFeedback})->Check();
  EXPECT_EQ(status.code(), StatusCode::kUsage);
  EXPECT_NE(status.message().find("momentum"), std::string::npos);
}

TEST(Sgd, UpdatesOfTwoParametersAreTwoOps) {
  EXPECT_NE(Sgd()->UpdateOp(0)->Attributes(), Sgd()->UpdateOp(1)->Attributes());
}

// So that checkpoints of before go on.
TEST(Sgd, DoesNotTellDefaultsOfRoundingAndStorage) {
  EXPECT_EQ(Sgd()->Settings().size(), 3u);
  const auto told =
      Sgd({.rounding = Rounding::kStochastic, .state = DType::kBF16})
          ->Settings();
  EXPECT_EQ(told.at("rounding"), "stochastic");
  EXPECT_EQ(told.at("optimizer state"), "bf16");
}

TEST(Sgd, TellsEverySettingThatDecidesBits) {
  const SgdOptions base{.momentum = 0.9f, .weight_decay = 1e-4f};
  SgdOptions other = base;
  other.nesterov = true;
  EXPECT_NE(Sgd(other)->Settings(), Sgd(base)->Settings());
  other = base;
  other.momentum = 0.8f;
  EXPECT_NE(Sgd(other)->Settings(), Sgd(base)->Settings());
  other = base;
  other.weight_decay = 2e-4f;
  EXPECT_NE(Sgd(other)->Settings(), Sgd(base)->Settings());
}

}  // namespace
}  // namespace thimble::optim
