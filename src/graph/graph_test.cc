// SPDX-License-Identifier: Apache-2.0
#include "thimble/graph.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "graph/test_op.h"

namespace thimble {
namespace {

using testing::TestOp;
using testing::TestOpTraits;

const ValueSpec kRows = {{8, 3}, DType::kF32, kBatchAxis};
const ValueSpec kBytes = {{8}, DType::kU8, kBatchAxis};

std::shared_ptr<const OpDef> Make(TestOpTraits traits) {
  return std::make_shared<TestOp>(std::move(traits));
}

TEST(Graph, AddsAValueForEachOutputUnderTheOpsName) {
  Graph graph;
  const ValueId x = graph.AddValue("x", kRows, Role::kInput);
  EXPECT_FALSE(graph.value(x).producer.valid());
  const auto made =
      graph.AddOp("split", Make({.outputs = {kRows, kBytes}}), {x});
  ASSERT_TRUE(made.ok()) << made.status().message();
  ASSERT_EQ(made->size(), 2u);
  const Value& first = graph.value((*made)[0]);
  const Value& second = graph.value((*made)[1]);
  EXPECT_EQ(first.name, "split");
  EXPECT_EQ(second.name, "split.1");
  EXPECT_EQ(first.role, Role::kActivation);
  EXPECT_EQ(second.spec.shape, kBytes.shape);
  EXPECT_EQ(second.spec.storage, DType::kU8);
  ASSERT_TRUE(second.producer.valid());
  EXPECT_EQ(graph.op(second.producer).name, "split");
  EXPECT_EQ(graph.op(second.producer).outputs, *made);
}

TEST(Graph, ARefusedOpIsNamedAndLeavesTheGraphAsItWas) {
  Graph graph;
  const ValueId x = graph.AddValue("x", kRows, Role::kInput);
  const std::string before = graph.ToText();
  const auto made =
      graph.AddOp("third", Make({.refusal = "needs [4], got [8, 3]"}), {x});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().message(), "test-op 'third': needs [4], got [8, 3]");
  EXPECT_EQ(graph.values().size(), 1u);
  EXPECT_TRUE(graph.ops().empty());
  EXPECT_EQ(graph.ToText(), before);
}

TEST(Graph, TextHasALineForEachOpWithShapesAndTypes) {
  Graph graph;
  const ValueId x = graph.AddValue("x", kRows, Role::kInput);
  const ValueId w = graph.AddValue("w", {{3}, DType::kF32}, Role::kParameter);
  const auto y = graph.AddOp("scale", Make({.outputs = {kRows}}), {x, w});
  const auto z =
      graph.AddOp("count", Make({.outputs = {kRows, kBytes}}), {(*y)[0]});
  ASSERT_TRUE(z.ok());
  EXPECT_EQ(graph.ToText(),
            "scale = test-op(x [8, 3] f32, w [3] f32) -> scale [8, 3] f32\n"
            "count = test-op(scale [8, 3] f32) -> count [8, 3] f32, "
            "count.1 [8] u8\n");
}

TEST(Graph, SpecsComeInTheOrderOfInputsAndOutputs) {
  Graph graph;
  const ValueId x = graph.AddValue("x", kRows, Role::kInput);
  const ValueId b = graph.AddValue("b", kBytes, Role::kInput);
  ASSERT_TRUE(
      graph.AddOp("op", Make({.outputs = {kBytes, kRows}}), {b, x, b}).ok());
  const Op& op = graph.ops()[0];
  const auto shapes = [](const std::vector<ValueSpec>& specs) {
    std::vector<Shape> list;
    for (const ValueSpec& s : specs) list.push_back(s.shape);
    return list;
  };
  EXPECT_EQ(shapes(graph.InputSpecs(op)),
            std::vector<Shape>({{8}, {8, 3}, {8}}));
  EXPECT_EQ(shapes(graph.OutputSpecs(op)), std::vector<Shape>({{8}, {8, 3}}));
}

TEST(Graph, CountsElementsOfParametersAlone) {
  Graph graph;
  EXPECT_EQ(graph.ParameterCount(), 0);
  graph.AddValue("x", kRows, Role::kInput);
  graph.AddValue("w", {{5, 7}, DType::kF32}, Role::kParameter);
  graph.AddValue("mean", {{100}, DType::kF32}, Role::kStatistic);
  const ValueId b = graph.AddValue("b", {{4}, DType::kF32}, Role::kParameter);
  EXPECT_EQ(graph.ParameterCount(), 39);
  graph.SetRole(b, Role::kStatistic);
  EXPECT_EQ(graph.ParameterCount(), 35);
}

TEST(ValueSpec, BytesFollowFromShapeAndType) {
  EXPECT_EQ(kRows.bytes(), 96u);
  EXPECT_EQ(kBytes.bytes(), 8u);
  EXPECT_EQ((ValueSpec{{8, 3}, DType::kF16}).bytes(), 48u);
  EXPECT_EQ((ValueSpec{{9}, DType::kBit}).bytes(), 2u);
}

TEST(RoleName, DiffersBetweenRoles) {
  std::vector<std::string> names;
  for (size_t r = 0; r < kRoles; ++r) {
    names.emplace_back(RoleName(static_cast<Role>(r)));
    EXPECT_NE(names.back(), "?");
    for (size_t other = 0; other < r; ++other) {
      EXPECT_NE(names[other], names[r]);
    }
  }
}

}  // namespace
}  // namespace thimble
