// SPDX-License-Identifier: Apache-2.0
//
// What scripts take, and the changes to scripts that are measured by it.
#include "planner/recompute/script_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/placed_buffers.h"
#include "planner/recompute/edit_runs.h"
#include "planner/recompute/rewrite.h"
#include "planner/schedule.h"
#include "planner/test_program.h"

namespace thimble::planner {
namespace {

using testing::kUnit;
using testing::NamesOf;
using testing::OpsNamed;
using testing::StraightProgram;
using testing::TestOpTraits;

// Live units at each moment of a script, the slow way: every result of every
// run is a thing of its own with a first and a last moment. Knows straight
// programs only: no views, and a gradient is written over one of its op's two
// inputs, or over none.
class PlainMeter {
 public:
  PlainMeter(const Program& program, std::optional<uint32_t> overwritten)
      : program_(program), overwritten_(overwritten) {}

  size_t MostLive(const Script& script) {
    things_.clear();
    std::map<uint32_t, size_t> latest;  // value: index of its thing
    const size_t end = script.size();
    for (uint32_t i = 0; i < program_.graph.values().size(); ++i) {
      const Value& value = program_.graph.values()[i];
      if (value.producer.valid() || value.name.starts_with("eval.")) continue;
      latest[i] = things_.size();
      const bool is_state = value.role == Role::kParameter;
      things_.push_back({value.spec.bytes(), 0, is_state ? end : 0});
    }
    for (size_t t = 0; t < end; ++t) {
      const Op& op = program_.graph.op(script[t]);
      for (ValueId v : op.inputs) {
        Thing& thing = things_[latest.at(v.i)];
        thing.last = std::max(thing.last, t);
      }
      for (ValueId v : op.outputs) {
        latest[v.i] = things_.size();
        const bool is_kept =
            IsTold(v) || program_.graph.value(v).role == Role::kGradient;
        things_.push_back(
            {program_.graph.value(v).spec.bytes(), t, is_kept ? end : t});
      }
      const bool may = op.name.starts_with("f") && op.name.ends_with(".grad");
      if (may && overwritten_.has_value()) {
        overwriters_[t] = {latest.at(op.inputs[*overwritten_].i),
                           things_.size() - 1};
      }
    }
    size_t most = 0;
    for (size_t t = 0; t < end; ++t) most = std::max(most, LiveAt(t));
    return most;
  }

 private:
  struct Thing {
    size_t bytes, first, last;  // both moments inclusive
  };

  bool IsTold(ValueId v) const {
    return program_.graph.op(program_.graph.value(v).producer).name == "loss";
  }

  size_t LiveAt(size_t t) const {
    size_t live = 0;
    for (const Thing& thing : things_) {
      if (thing.first <= t && t <= thing.last) live += thing.bytes;
    }
    const auto at = overwriters_.find(t);
    if (at == overwriters_.end()) return live;
    const Thing& in = things_[at->second.first];
    const Thing& out = things_[at->second.second];
    const bool is_last = in.last == t && in.bytes == out.bytes;
    return is_last ? live - out.bytes : live;
  }

  const Program& program_;
  const std::optional<uint32_t> overwritten_;
  std::vector<Thing> things_;
  std::map<size_t, std::pair<size_t, size_t>> overwriters_;
};

TEST(ScriptMeter, MeasuresWhatIsCountedByHand) {
  const Program program = StraightProgram(2);
  ScriptMeter meter(program, {});
  // As in lives_test.cc; FLOPs: 10 + 20 + 1 forward, 1 + 40 + 20 backward.
  const ScriptCosts none =
      meter.Measure(OpsNamed(program, "f1 f2 loss loss.grad f2.grad f1.grad"));
  EXPECT_EQ(none.most_live, 17 * kUnit);
  EXPECT_EQ(none.flops, 92);
  // Without x1 from f2 on, loss.grad has 13, and f2.grad as before 16.
  const ScriptCosts again = meter.Measure(
      OpsNamed(program, "f1 f2 loss loss.grad f1 f2.grad f1.grad"));
  EXPECT_EQ(again.most_live, 16 * kUnit);
  EXPECT_EQ(again.flops, 102);
}

TEST(ScriptMeter, KnowsWhatLastsAndWhatOtherPhasesTake) {
  const Program program = StraightProgram(2, {}, /*microbatches=*/2);
  const ScriptMeter meter(program, {});
  EXPECT_EQ(meter.lasting_bytes(), int64_t{2 * kUnit});  // w and its gradient
  EXPECT_EQ(meter.other_phases(), int64_t{6 * kUnit});   // the evaluation
}

// Each forward op but the loss may run again before each backward op: all
// combinations.
TEST(ScriptMeter, AgreesWithThePlainOneAndWithTheProgramsThemselves) {
  constexpr int kStages = 3;
  using Overwritten = std::optional<uint32_t>;
  for (const Overwritten overwritten :
       {Overwritten(), Overwritten(0), Overwritten(1)}) {
    TestOpTraits gradient;
    if (overwritten.has_value()) gradient.in_place = {{*overwritten, 0}};
    const Program program = StraightProgram(kStages, gradient);
    ScriptMeter meter(program, {});
    const Script forward = OpsNamed(program, "f1 f2 f3 loss");
    const Script backward =
        OpsNamed(program, "loss.grad f3.grad f2.grad f1.grad");
    for (uint32_t bits = 0; bits < 1u << (3 * 4); ++bits) {
      Script script = forward;
      for (uint32_t b = 0; b < 4; ++b) {
        for (uint32_t f = 0; f < 3; ++f) {
          if (((bits >> (3 * b + f)) & 1) != 0) script.push_back(forward[f]);
        }
        script.push_back(backward[b]);
      }
      const ScriptCosts costs = meter.Measure(script);
      const size_t plain = PlainMeter(program, overwritten).MostLive(script);
      ASSERT_EQ(costs.most_live, plain) << NamesOf(program, script);
      if (bits % 16 != 5) continue;  // the rest of it takes long
      const Program made = Rewrite(program, script);
      ASSERT_EQ(costs.most_live, std::ranges::max(LiveBytes(made, {})));
      ASSERT_EQ(costs.flops, CountFlops(made.graph, MakeSchedule(made)).step);
    }
  }
}

TEST(DelayRuns, RunsAgainRightBeforeTheFirstReader) {
  const Program program = StraightProgram(3);
  const ScriptMeter meter(program, {});
  const auto delayed = [&](const std::string& script) {
    return NamesOf(program,
                   DelayRuns(program, meter, OpsNamed(program, script)));
  };
  EXPECT_EQ(delayed("f1 f2 f3 loss f1 f2 loss.grad f3.grad f2.grad f1.grad"),
            "f1 f2 f3 loss loss.grad f1 f2 f3.grad f2.grad f1.grad");
  // The order comes from who reads what, not from the script.
  EXPECT_EQ(delayed("f1 f2 f3 loss f2 f1 loss.grad f3.grad f2.grad f1.grad"),
            "f1 f2 f3 loss loss.grad f1 f2 f3.grad f2.grad f1.grad");
}

TEST(DelayRuns, LeavesOutWhatNobodyReads) {
  const Program program = StraightProgram(2);
  const ScriptMeter meter(program, {});
  const Script script =
      OpsNamed(program, "f1 f2 loss loss.grad f2.grad f2 f1 f1.grad");
  EXPECT_EQ(NamesOf(program, DelayRuns(program, meter, script)),
            "f1 f2 loss loss.grad f2.grad f1.grad");
}

// By hand, as in lives_test.cc. With all three runs again, f2's and both
// gradients have 16 units. Without f2's, x2 waits beside x3 and its gradient,
// 17, and nobody reads the first of f1's. Without both of f1's, x1 waits too.
TEST(LeaveOutRuns, LeavesOutTheMostWorkThatTheLimitAllows) {
  const Program program = StraightProgram(3);
  ScriptMeter meter(program, {});
  const std::string all =
      "f1 f2 f3 loss loss.grad f1 f2 f3.grad f1 f2.grad f1.grad";
  const std::string one = "f1 f2 f3 loss loss.grad f3.grad f1 f2.grad f1.grad";
  const std::string none = "f1 f2 f3 loss loss.grad f3.grad f2.grad f1.grad";
  const auto units = [&](const std::string& script) {
    return meter.Measure(OpsNamed(program, script)).most_live / kUnit;
  };
  EXPECT_EQ(units(all), 16u);
  EXPECT_EQ(units(one), 17u);
  EXPECT_EQ(units(none), 21u);
  const auto within = [&](size_t limit) {
    return NamesOf(program, LeaveOutRuns(program, meter, OpsNamed(program, all),
                                         limit * kUnit));
  };
  EXPECT_EQ(within(16), all);
  EXPECT_EQ(within(17), one);
  EXPECT_EQ(within(20), one);
  EXPECT_EQ(within(21), none);
}

}  // namespace
}  // namespace thimble::planner
