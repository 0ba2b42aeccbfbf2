// SPDX-License-Identifier: Apache-2.0
#include "thimble/graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/attributes.h"
#include "graph/fingerprint.h"
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

// x [batch, 3] and w -> an op, and another.
Graph SmallGraph(int64_t batch, const std::string& attributes) {
  Graph graph;
  const ValueSpec rows = {{batch, 3}, DType::kF32, kBatchAxis};
  const ValueId x = graph.AddValue("x", rows, Role::kInput);
  const ValueId w = graph.AddValue("w", {{3}, DType::kF32}, Role::kParameter,
                                   {Init::Kind::kNormal, 1.0f});
  const auto y = graph.AddOp(
      "first", Make({.outputs = {rows}, .attributes = attributes}), {x, w});
  EXPECT_TRUE(y.ok());
  EXPECT_TRUE(
      graph.AddOp("second", Make({.outputs = {rows}}), {(*y)[0], x}).ok());
  return graph;
}

TEST(Fingerprint, DependsOnAllOfAGraphButItsBatch) {
  const std::string own = Fingerprint(SmallGraph(8, "stride 1"));
  EXPECT_EQ(own.size(), 16u);
  EXPECT_EQ(Fingerprint(SmallGraph(8, "stride 1")), own);
  EXPECT_EQ(Fingerprint(SmallGraph(16, "stride 1")), own);
  std::set<std::string> all = {own, Fingerprint(Graph()),
                               Fingerprint(SmallGraph(8, "stride 2"))};
  size_t graphs = 3;
  const auto other = [&](const Graph& graph) {
    EXPECT_TRUE(all.insert(Fingerprint(graph)).second) << graph.ToText();
    ++graphs;
  };
  Graph longer = SmallGraph(8, "stride 1");
  longer.AddValue("b", {{3}, DType::kF32}, Role::kParameter);
  other(longer);
  // What follows differs from `longer` in one thing.
  const auto with = [&](const char* name, const ValueSpec& spec, Role role,
                        Init init) {
    Graph graph = SmallGraph(8, "stride 1");
    graph.AddValue(name, spec, role, init);
    other(graph);
  };
  with("c", {{3}, DType::kF32}, Role::kParameter, {});
  with("b", {{4}, DType::kF32}, Role::kParameter, {});
  with("b", {{3}, DType::kF16}, Role::kParameter, {});
  Storage storage = DType::kF32;
  storage.sparsity = Sparsity{.kept = 2, .block = {}, .member = 0};
  with("b", {{3}, storage}, Role::kParameter, {});
  storage.sparsity->kept = 1;
  with("b", {{3}, storage}, Role::kParameter, {});
  storage.sparsity.reset();
  storage.blocks = ValueBlocks{.values = 64, .scale = DType::kF16};
  with("b", {{3}, storage}, Role::kParameter, {});
  with("b", {{3}, DType::kF32, kBatchAxis}, Role::kParameter, {});
  with("b", {{3}, DType::kF32, AxisId{1}}, Role::kParameter, {});
  with("b", {{3}, DType::kF32}, Role::kStatistic, {});
  with("b", {{3}, DType::kF32}, Role::kParameter,
       {Init::Kind::kConstant, 1.0f});
  with("b", {{3}, DType::kF32}, Role::kParameter, {Init::Kind::kUniform, 0.0f});
  // And in an op: its name and what it reads.
  const auto read = [&](const char* name, std::vector<ValueId> inputs) {
    Graph graph = SmallGraph(8, "stride 1");
    EXPECT_TRUE(
        graph.AddOp(name, Make({.outputs = {kRows}}), std::move(inputs)).ok());
    other(graph);
  };
  read("third", {{0}, {1}});
  read("fourth", {{0}, {1}});
  read("third", {{1}, {0}});
  read("third", {{0}, {2}});
  read("third", {{0}});
  EXPECT_EQ(all.size(), graphs);
}

TEST(Attributes, AreNamesAndValuesInTurn) {
  EXPECT_EQ(ListAttributes(), "");
  EXPECT_EQ(
      ListAttributes("stride", int64_t{2}, "epsilon", 1e-5f, "residual", true),
      "stride 2, epsilon 1e-05, residual yes");
  EXPECT_EQ(ListAttributes("scale", std::vector<float>{0.5f, 1.0f}, "x",
                           ValueSpec{{8, 3}, DType::kF32, kBatchAxis}),
            "scale [0.5, 1], x [8, 3] f32 along axis 0");
  // Neighbours among floats differ.
  EXPECT_NE(ListAttributes("rate", 0.1f),
            ListAttributes("rate", std::nextafter(0.1f, 1.0f)));
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
