// SPDX-License-Identifier: Apache-2.0
#include "optim/sgd.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace thimble::optim {
namespace {

// Adds an update of three values to a graph of its own.
Status AddUpdate(const std::vector<ValueSpec>& specs) {
  Graph graph;
  std::vector<ValueId> inputs;
  for (const ValueSpec& spec : specs) {
    inputs.push_back(graph.AddValue("v", spec, Role::kActivation));
  }
  return graph.AddOp("update", Sgd()->UpdateOp(), std::move(inputs)).status();
}

TEST(Sgd, TakesF32OfOneShapeOnly) {
  const ValueSpec w{{4, 3}, DType::kF32};
  EXPECT_TRUE(AddUpdate({w, w}).ok());
  EXPECT_TRUE(AddUpdate({w, w, w}).ok());
  EXPECT_FALSE(AddUpdate({w, {{3, 4}, DType::kF32}, w}).ok());
  const char* names[] = {"parameter", "gradient", "velocity"};
  for (size_t k = 0; k < 3; ++k) {
    for (const DType dtype :
         {DType::kF16, DType::kBF16, DType::kU8, DType::kI32, DType::kBit}) {
      std::vector<ValueSpec> specs(3, w);
      specs[k].storage = dtype;
      const Status status = AddUpdate(specs);
      const std::string both = std::string("needs ") + names[k] +
                               " stored as f32, got " + DTypeName(dtype);
      EXPECT_NE(status.message().find(both), std::string::npos)
          << status.message();
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
