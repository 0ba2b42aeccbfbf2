// SPDX-License-Identifier: Apache-2.0
//
// Chains, the scripts over them, and the programs that scripts stand for.
#include "planner/recompute/script.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/recompute/rewrite.h"
#include "planner/recompute/script_meter.h"
#include "planner/recompute/strategy_script.h"
#include "planner/test_program.h"

namespace thimble::planner {
namespace {

using testing::NamesOf;
using testing::OpNamed;
using testing::OpsNamed;
using testing::StraightProgram;
using testing::TestProgram;

std::string ScriptNamed(const Program& program, const std::string& strategy) {
  ScriptMeter meter(program, {});
  return NamesOf(program, ScriptOf(program, FindChain(program),
                                   *ParseStrategy(strategy), meter));
}

TEST(FindChain, CutsWhereOneValueIsCarriedOn) {
  const Program program = StraightProgram(3);
  const Chain chain = FindChain(program);
  ASSERT_EQ(chain.stages.size(), 4u);
  EXPECT_EQ(NamesOf(program, chain.stages[1].forward), "f2");
  EXPECT_EQ(NamesOf(program, chain.stages[1].backward), "f2.grad");
  ASSERT_EQ(chain.stages[1].carried.size(), 1u);
  EXPECT_EQ(program.graph.value(chain.stages[1].carried[0]).name, "f2");
  EXPECT_EQ(NamesOf(program, chain.stages[3].forward), "loss");
  EXPECT_TRUE(chain.stages[3].carried.empty());
  for (const Stage& stage : chain.stages) EXPECT_FALSE(stage.branches);
}

TEST(FindChain, ABlockWithTwoWaysIsOneStageThatBranches) {
  TestProgram t;
  const ValueId images = t.Input("images", 1);
  const ValueId labels = t.Input("labels", 1);
  const ValueId x = t.Forward("stem", {images}, {4})[0];
  const ValueId y = t.Forward("way", {x}, {4})[0];
  const ValueId z = t.Forward("sum", {x, y}, {4})[0];
  const auto ends =
      t.Forward("loss", {z, labels}, {1, 1}, {}, Role::kStatistic);
  t.TrainEnds(images, labels, ends[0], ends[1]);
  t.Backward(3, "loss.grad", {z, labels}, {4});
  t.Backward(1, "way.grad", {x, y}, {4});
  const Chain chain = FindChain(t.program);
  ASSERT_EQ(chain.stages.size(), 3u);
  EXPECT_EQ(NamesOf(t.program, chain.stages[0].forward), "stem");
  EXPECT_EQ(NamesOf(t.program, chain.stages[1].forward), "way sum");
  EXPECT_EQ(NamesOf(t.program, chain.stages[1].backward), "way.grad");
  EXPECT_FALSE(chain.stages[0].branches);
  EXPECT_TRUE(chain.stages[1].branches);
}

TEST(MergeStages, KeepsEveryOpInItsOrder) {
  const Program program = StraightProgram(4);
  const Chain chain = FindChain(program);  // f1 f2 f3 f4 loss
  const Chain merged = MergeStages(chain, 2);
  ASSERT_EQ(merged.stages.size(), 2u);
  EXPECT_EQ(NamesOf(program, merged.stages[0].forward), "f1 f2");
  EXPECT_EQ(NamesOf(program, merged.stages[0].backward), "f2.grad f1.grad");
  EXPECT_EQ(NamesOf(program, merged.stages[1].forward), "f3 f4 loss");
  EXPECT_EQ(NamesOf(program, merged.stages[1].backward),
            "loss.grad f4.grad f3.grad");
  EXPECT_EQ(merged.stages[0].carried, chain.stages[1].carried);
  EXPECT_EQ(MergeStages(chain, 9).stages.size(), chain.stages.size());
}

TEST(ScriptOf, NamedStrategiesRunWhatTheySay) {
  const Program program = StraightProgram(3);
  const std::string none = "f1 f2 f3 loss loss.grad f3.grad f2.grad f1.grad";
  EXPECT_EQ(ScriptNamed(program, "none"), none);
  // f1, f2 and f3 are what the stages carry on: all are kept.
  EXPECT_EQ(ScriptNamed(program, "every-1"), none);
  // Kept: f2 alone. f3's gradient finds it; loss.grad needs f3, f2.grad f1.
  EXPECT_EQ(ScriptNamed(program, "every-2"),
            "f1 f2 f3 loss f3 loss.grad f3.grad f1 f2.grad f1.grad");
  // Kept: nothing. loss.grad needs f3, which is made from the images; on the
  // way everything is there again.
  EXPECT_EQ(ScriptNamed(program, "every-4"),
            "f1 f2 f3 loss f1 f2 f3 loss.grad f3.grad f2.grad f1.grad");
  // Cut after f2; the second half is kept as it is made.
  EXPECT_EQ(ScriptNamed(program, "recursive-1"),
            "f1 f2 f3 loss loss.grad f3.grad f1 f2.grad f1.grad");
}

TEST(ScriptWriter, MakesWhatWasForgottenFromTheNearestValueThatIsThere) {
  const Program program = StraightProgram(3);
  const Chain chain = FindChain(program);
  ScriptWriter writer(program, chain);
  for (size_t s = 0; s < 4; ++s) writer.ForwardAndKeep(s);
  EXPECT_TRUE(writer.HasRun(3));
  writer.Forget(program.graph.op(OpNamed(program, "f2")).outputs[0]);
  writer.Forget(program.graph.op(OpNamed(program, "f3")).outputs[0]);
  for (size_t s = 4; s-- > 0;) writer.Backward(s);
  EXPECT_EQ(NamesOf(program, writer.Take()),
            "f1 f2 f3 loss f2 f3 loss.grad f3.grad f2.grad f1.grad");
}

// The microbatch phase as text, with what each op reads: "a(b c)".
std::string Reading(const Program& program) {
  std::string text;
  for (OpId id : program.phases[static_cast<size_t>(Phase::kMicrobatch)]) {
    const Op& op = program.graph.op(id);
    if (!text.empty()) text += ' ';
    text += op.name + "(";
    for (ValueId v : op.inputs) {
      if (v != op.inputs[0]) text += ' ';
      text += program.graph.value(v).name;
    }
    text += ')';
  }
  return text;
}

TEST(Rewrite, WhatComesLaterReadsTheLatestRun) {
  const Program program = StraightProgram(2);
  const Program made = Rewrite(
      program, OpsNamed(program, "f1 f2 loss f1 loss.grad f1 f2.grad f1.grad"));
  EXPECT_EQ(Reading(made),
            "f1(images w) f2(f1) loss(f2 labels) f1.again(images w) "
            "loss.grad(f2 labels) f1.again2(images w) "
            "f2.grad(f1.again2 loss.grad) f1.grad(images f2.grad)");
  EXPECT_EQ(made.origins[OpNamed(made, "f1.again").i].part,
            OpOrigin::Part::kRecompute);
  EXPECT_EQ(made.origins[OpNamed(made, "f1").i].part, OpOrigin::Part::kForward);
  EXPECT_EQ(made.origins[OpNamed(made, "f2.grad").i].part,
            OpOrigin::Part::kBackward);
  // The other phases, and what is fed and told, are as they were.
  EXPECT_EQ(NamesOf(made, made.phases[static_cast<size_t>(Phase::kUpdate)]),
            "w.update");
  EXPECT_EQ(made.graph.value(made.train.loss).name, "loss");
  EXPECT_EQ(made.graph.value(made.evaluate.feeds[0].value).name, "eval.images");
}

TEST(Rewrite, AFormThatReadsWhatWasSavedGetsItBehindItsInputs) {
  TestProgram t;
  const ValueId images = t.Input("images", 1);
  const ValueId labels = t.Input("labels", 1);
  const auto made =
      t.Forward("norm", {images}, {4, 1, 1}, {.repeats_from_saved = true});
  const auto ends =
      t.Forward("loss", {made[0], labels}, {1, 1}, {}, Role::kStatistic);
  t.TrainEnds(images, labels, ends[0], ends[1]);
  t.Backward(1, "loss.grad", {made[0], labels}, {4});
  const Program again =
      Rewrite(t.program, OpsNamed(t.program, "norm loss norm loss.grad"));
  EXPECT_EQ(Reading(again),
            "norm(images) loss(norm labels) norm.again(images norm.1 norm.2) "
            "loss.grad(norm.again labels)");
}

}  // namespace
}  // namespace thimble::planner
