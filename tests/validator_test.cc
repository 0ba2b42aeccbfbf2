// SPDX-License-Identifier: Apache-2.0
//
// The validator can fail: a valid plan, broken in one place, is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "graph/op.h"
#include "thimble/network.h"
#include "thimble/plan.h"

namespace thimble::testing {
namespace {

// Residual, in-place chains, a view, scratch, statistics.
Plan SoundPlan(int64_t microbatch = 0) {
  Network net("sound", 3);
  ValueId x = net.Images({.channels = 2, .height = 12, .width = 12});
  x = net.Relu(net.BatchNorm("bn", net.Conv2d("conv1", x, {.channels = 4})));
  const ValueId y = net.Conv2d("conv2", x, {.channels = 4});
  x = net.MaxPool(net.Relu(net.Add(x, y)));
  const Result<Model> model = net.Finish(net.Linear("fc", net.Flatten(x), 5));
  EXPECT_TRUE(model.ok()) << model.status().message();
  Result<Plan> plan = MakePlan(*model, {.microbatch = microbatch});
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *std::move(plan);
}

class ValidatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const Status status = ValidatePlan(Plan(parts_));
    ASSERT_TRUE(status.ok()) << status.message();
  }

  ValueId Find(const std::string& name) const {
    const auto values = parts_.graph.values();
    for (uint32_t i = 0; i < values.size(); ++i) {
      if (values[i].name == name) return {i};
    }
    ADD_FAILURE() << "no value " << name;
    return {0};
  }
  Buffer& BufferOf(const std::string& name) {
    return parts_.buffers[parts_.buffer_of[Find(name).i]];
  }
  size_t TimeOf(const std::string& op) const {
    for (size_t t = 0; t < parts_.schedule.size(); ++t) {
      if (parts_.graph.op(parts_.schedule[t].op).name == op) return t;
    }
    ADD_FAILURE() << "no op " << op;
    return 0;
  }

  // The broken plan is refused, with `text` in the reason.
  void ExpectRefused(const std::string& text) const {
    const Status status = ValidatePlan(Plan(parts_));
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(text), std::string::npos)
        << "got: " << status.message();
  }

  PlanParts parts_ = SoundPlan().parts();
};

TEST_F(ValidatorTest, RefusesTwoLiveBuffersInOnePlace) {
  BufferOf("conv1.weight").offset = BufferOf("fc.weight").offset;
  ExpectRefused("live together and overlap");
}

TEST_F(ValidatorTest, RefusesAnyBufferOfStateMovedOntoItsNeighbour) {
  // State lives throughout: one step of alignment up always meets the next
  // buffer, or the end of the arena.
  const PlanParts sound = parts_;
  for (const ParameterState& p : sound.parameters) {
    for (ValueId v : {p.parameter, p.state[0]}) {
      parts_ = sound;
      Buffer& moved = parts_.buffers[parts_.buffer_of[v.i]];
      moved.offset += 64;
      const bool meets =
          std::ranges::any_of(parts_.buffers,
                              [&](const Buffer& b) {
                                return &b != &moved &&
                                       b.offset < moved.offset + moved.bytes &&
                                       moved.offset < b.offset + b.bytes;
                              }) ||
          moved.offset + moved.bytes > parts_.arena_bytes;
      if (meets) ExpectRefused("");
    }
  }
}

TEST_F(ValidatorTest, RefusesAValueThatIsShorterThanItsAxis) {
  Graph graph({{"images", parts_.graph.axes()[0].capacity + 1}});
  for (const Value& v : parts_.graph.values()) {
    graph.AddValue(v.name, v.spec, v.role, v.init);
  }
  parts_.graph = std::move(graph);
  ExpectRefused("does not have the extent of its axis");
}

TEST_F(ValidatorTest, RefusesAValueOverwrittenBeforeItsLastRead) {
  // Both claim lives that do not meet, so that only the simulation can tell.
  // conv1's output is read again by the batch norm's gradient.
  Buffer& kept = BufferOf("conv1");
  kept.live.end = static_cast<uint32_t>(TimeOf("bn") + 1);
  Buffer& later = BufferOf("conv2");
  ASSERT_GE(later.live.begin, kept.live.end);
  ASSERT_EQ(later.bytes, kept.bytes);
  later.offset = kept.offset;
  ExpectRefused("bn.grad");
}

TEST_F(ValidatorTest, RefusesStateThatALaterPhaseOverwrites) {
  Buffer& state = BufferOf("bn.running_mean");
  Buffer& other = BufferOf("eval.conv1");
  // As if the statistic were not read any more when evaluation begins.
  state.live.end = other.live.begin;
  state.offset = other.offset;
  ExpectRefused("");
}

TEST_F(ValidatorTest, RefusesAConsumerBeforeItsProducer) {
  std::swap(parts_.schedule[TimeOf("conv1")], parts_.schedule[TimeOf("bn")]);
  ExpectRefused("not there");
}

TEST_F(ValidatorTest, RefusesAScheduleThatLeavesOutAnOp) {
  parts_.schedule.erase(parts_.schedule.begin() +
                        static_cast<ptrdiff_t>(TimeOf("conv2")));
  ExpectRefused("not there");
}

TEST_F(ValidatorTest, RefusesOffsetsThatAreNotAligned) {
  Buffer& last = BufferOf("loss");
  last.offset += 4;
  ExpectRefused("aligned");
}

TEST_F(ValidatorTest, RefusesAnArenaThatIsTooSmall) {
  parts_.arena_bytes -= 64;
  ExpectRefused("");
}

TEST_F(ValidatorTest, RefusesRolesThatDoNotAddUp) {
  parts_.peak_bytes[static_cast<size_t>(Role::kGradient)] += 64;
  ExpectRefused("roles add up");
}

TEST_F(ValidatorTest, RefusesAnOutputOnAnInputWithoutPermission) {
  // A convolution reads its input while it writes.
  const uint32_t input = parts_.buffer_of[Find("conv2").i];
  for (size_t i = 0; i < parts_.buffer_of.size(); ++i) {
    if (parts_.graph.values()[i].name == "relu1") {
      parts_.buffer_of[i] = input;
    }
  }
  ExpectRefused("");
}

TEST_F(ValidatorTest, RefusesAViewThatLiesElsewhere) {
  ValueId view;
  for (const Op& op : parts_.graph.ops()) {
    if (op.def->IsView() && !view.valid()) view = op.outputs[0];
  }
  ASSERT_TRUE(view.valid());
  Buffer apart = parts_.buffers[parts_.buffer_of[view.i]];
  apart.offset = parts_.arena_bytes;
  parts_.arena_bytes += apart.bytes;
  parts_.buffer_of[view.i] = static_cast<uint32_t>(parts_.buffers.size());
  parts_.buffers.push_back(apart);
  ExpectRefused("view");
}

TEST_F(ValidatorTest, RefusesScratchOnAnOperand) {
  const size_t t = TimeOf("conv2");
  ASSERT_TRUE(parts_.schedule[t].scratch.has_value());
  Buffer& scratch = parts_.buffers[*parts_.schedule[t].scratch];
  scratch.offset = BufferOf("conv2.weight").offset;
  scratch.live = {0, 0};  // so that the lives do not meet
  ExpectRefused("scratch");
}

TEST_F(ValidatorTest, RefusesScratchOutsideOfTheArena) {
  const size_t t = TimeOf("conv2");
  parts_.buffers[*parts_.schedule[t].scratch].offset = parts_.arena_bytes;
  ExpectRefused("");
}

TEST_F(ValidatorTest, RefusesScratchThatIsNotAligned) {
  const size_t t = TimeOf("conv2");
  Buffer& scratch = parts_.buffers[*parts_.schedule[t].scratch];
  scratch.offset = parts_.arena_bytes + 4;
  parts_.arena_bytes += scratch.bytes + 64;
  ExpectRefused("");
}

TEST_F(ValidatorTest, RefusesScratchThatIsMissingOrTooSmall) {
  const PlanParts sound = parts_;
  const size_t t = TimeOf("conv2");
  parts_.buffers[*parts_.schedule[t].scratch].bytes -= 64;
  ExpectRefused("");
  parts_ = sound;
  parts_.schedule[t].scratch.reset();
  ExpectRefused("");
}

TEST_F(ValidatorTest, RefusesALossThatIsLostBeforeTheHostReadsIt) {
  Buffer& loss = BufferOf("loss");
  Buffer& gradient = BufferOf("conv1.grad_w");
  loss.live.end = gradient.live.begin;
  loss.offset = gradient.offset;
  ExpectRefused("");
}

class MicrobatchValidatorTest : public ValidatorTest {
 protected:
  MicrobatchValidatorTest() { parts_ = SoundPlan(/*microbatch=*/1).parts(); }
};

TEST_F(MicrobatchValidatorTest, RefusesASumThatTheNextMicrobatchLoses) {
  // As if it were needed from its own op on, which the labels do not live to
  // see: both take the same new bytes. The next microbatch's labels are then
  // written over it.
  Buffer& sum = BufferOf("fc.add_bias.grad_b");
  Buffer& labels = BufferOf("labels");
  ASSERT_EQ(sum.live.begin, 0u);
  sum.live.begin = static_cast<uint32_t>(TimeOf("fc.add_bias.grad_b"));
  ASSERT_LE(labels.live.end, sum.live.begin);
  ASSERT_EQ(labels.bytes, sum.bytes);
  sum.offset = parts_.arena_bytes;
  labels.offset = parts_.arena_bytes;
  parts_.arena_bytes += sum.bytes;
  ExpectRefused("adds to what is lost");
  parts_.batch = parts_.microbatch;
  const Status alone = ValidatePlan(Plan(parts_));
  EXPECT_TRUE(alone.ok()) << alone.message();
}

TEST_F(MicrobatchValidatorTest, RefusesASumThatIsOverwritten) {
  for (const char* name : {"fc.grad_w", "bn.track", "bn.grad.1"}) {
    const PlanParts sound = parts_;
    parts_.carried[Find(name).i] = false;
    ExpectRefused("is not told to carry");
    parts_ = sound;
  }
}

}  // namespace
}  // namespace thimble::testing
