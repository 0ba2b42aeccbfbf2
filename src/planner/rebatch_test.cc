// SPDX-License-Identifier: Apache-2.0
#include "planner/rebatch.h"

#include <gtest/gtest.h>

#include <memory>

#include "ops/linear.h"

namespace thimble::planner {
namespace {

// Rows of tokens, and rows of sentences beside them, which share a weight.
Model TwoAxes() {
  Model model;
  model.name = "text";
  Graph& g = model.graph;
  const AxisId tokens = g.AddAxis("tokens", 250);
  const AxisId sentences = g.AddAxis("sentences", 30);
  const ValueId x =
      g.AddValue("x", {{250, 4}, DType::kF32, tokens}, Role::kInput);
  const ValueId s =
      g.AddValue("s", {{30, 4}, DType::kF32, sentences}, Role::kInput);
  const ValueId w = g.AddValue("w", {{6, 4}, DType::kF32}, Role::kParameter);
  const ValueId y = (*g.AddOp("y", std::make_shared<ops::Linear>(), {x, w}))[0];
  const ValueId z = (*g.AddOp("z", std::make_shared<ops::Linear>(), {s, w}))[0];
  model.ends = {.feeds = {{"x", x}, {"s", s}},
                .outputs = {{"y", y}, {"z", z}},
                .loss = {},
                .metrics = {}};
  return model;
}

TEST(Rebatch, ScalesEveryAxisAndWhatCountsAlongIt) {
  const Model whole = TwoAxes();
  EXPECT_EQ(whole.batch(), 250);
  const Model part = Rebatch(whole, 50);
  EXPECT_EQ(part.batch(), 50);
  const auto shape = [&part](ValueId v) {
    return part.graph.value(v).spec.shape;
  };
  EXPECT_EQ(shape(part.ends.feeds[0].value), (Shape{50, 4}));
  EXPECT_EQ(shape(part.ends.feeds[1].value), (Shape{6, 4}));
  EXPECT_EQ(shape(part.ends.outputs[0].value), (Shape{50, 6}));
  EXPECT_EQ(shape(part.ends.outputs[1].value), (Shape{6, 6}));
  // A weight counts along none.
  EXPECT_EQ(shape(part.graph.ops()[0].inputs[1]), (Shape{6, 4}));
  EXPECT_EQ(part.graph.axes()[1], (Axis{"sentences", 6}));
}

TEST(Rebatch, RoundsTheOtherAxesUp) {
  const Model part = Rebatch(TwoAxes(), 25);
  EXPECT_EQ(part.graph.axes()[0].capacity, 25);
  EXPECT_EQ(part.graph.axes()[1].capacity, 3);
  EXPECT_EQ(Rebatch(TwoAxes(), 10).graph.axes()[1].capacity, 2);
}

}  // namespace
}  // namespace thimble::planner
