// SPDX-License-Identifier: Apache-2.0
//
// What an op says that its backward reads (OpDef::Needs) is what the ops of its
// backward read in the plan: less would let the planner drop a value too early,
// more would keep bytes for nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "graph/op.h"
#include "ops/lstm_cell.h"
#include "ops/lstm_gates.h"
#include "thimble/network.h"
#include "thimble/plan.h"

namespace thimble::testing {
namespace {

// A network with every op at a place where all of its gradients are wanted, and
// both forms of ReLU.
Result<Model> EveryOp() {
  Network net("every", 2);
  ValueId x = net.Images({.channels = 1, .height = 9, .width = 9});
  x = net.Conv2d("first", x, {.channels = 2});
  x = net.Relu(net.BatchNorm("bn", net.Conv2d("conv", x, {.channels = 3})));
  x = net.Bias("bias", net.MaxPool(x));  // the ReLU above keeps a mask
  const ValueId narrow = net.AveragePool(x, {.kernel = 3, .stride = 1});
  const ValueId wide = net.Shortcut(narrow, 4, 1);
  x = net.Relu(net.Add(net.Conv2d("branch", narrow, {.channels = 4}), wide));
  x = net.Conv2d("reader", x, {.channels = 2});  // keeps the ReLU's output
  const ValueId rows =
      net.Linear("fc1", net.Dropout(net.GlobalAveragePool(x), 0.5), 4);
  const ValueId flat = net.Linear("fc2", net.Flatten(x), 4);
  return net.Finish(net.Linear("fc3", net.Add(rows, flat), 3));
}

// The same of sequences: two steps, one with a state before it.
Result<Model> EverySequenceOp() {
  Network net("sequence", 2);
  const int64_t features =
      net.ImageSequence({.channels = 1, .height = 4, .width = 3}, 4);
  const LstmWeights weights = net.Lstm("lstm", 5, 4);
  LstmState state;
  for (int64_t step = 0; step < 4; ++step) {
    const std::string name = "s" + std::to_string(step);
    const ValueId x =
        net.Linear(name, net.SequenceStep(step), features + 2, false);
    state = net.LstmStep(name, x, weights, state);
  }
  return net.Finish(net.Linear("fc", state.h, 3, /*bias=*/false));
}

// Which values of the forward pass the backward ops of one op read.
struct Reads {
  uint32_t inputs = 0;
  bool output = false;
  bool saved = false;
};

class NeedsTest : public ::testing::Test {
 protected:
  void SetUp() override { Use(EveryOp()); }

  void Use(const Result<Model>& model) {
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = *model;
    forward_.clear();
    backward_.clear();
    Result<Plan> plan = MakePlan(model_, {});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    plan_.emplace(*std::move(plan));
    bool forward = true;
    for (const ScheduledOp& scheduled : plan_->schedule()) {
      if (scheduled.phase != Phase::kMicrobatch) continue;
      const Op& op = plan_->graph().op(scheduled.op);
      (forward ? forward_ : backward_).push_back(&op);
      if (op.outputs[0] == plan_->train_ends().loss) forward = false;
    }
  }

  // The training form of the model's op, by name.
  const Op* ForwardOf(const Op& op) const {
    for (const Op* candidate : forward_) {
      if (candidate->name == op.name) return candidate;
    }
    ADD_FAILURE() << "no forward op " << op.name;
    return nullptr;
  }

  bool IsForwardValue(ValueId v) const {
    const OpId producer = plan_->graph().value(v).producer;
    return std::ranges::none_of(backward_, [&](const Op* op) {
      return producer.valid() && &plan_->graph().op(producer) == op;
    });
  }

  Reads ReadsOf(const Op& op) const {
    Reads reads;
    const Op* forward = ForwardOf(op);
    if (forward == nullptr) return reads;
    for (const Op* backward : backward_) {
      if (!backward->name.starts_with(op.name + ".grad")) continue;
      for (ValueId v : backward->inputs) {
        if (!IsForwardValue(v)) continue;
        bool own = false;
        for (size_t k = 0; k < forward->inputs.size(); ++k) {
          if (forward->inputs[k] != v) continue;
          reads.inputs |= 1u << k;
          own = true;
        }
        for (size_t k = 0; k < forward->outputs.size(); ++k) {
          if (forward->outputs[k] != v) continue;
          (k == 0 ? reads.output : reads.saved) = true;
          own = true;
        }
        EXPECT_TRUE(own) << backward->name << " reads "
                         << plan_->graph().value(v).name
                         << ", which is not its forward op's";
      }
    }
    return reads;
  }

  Model model_;
  std::optional<Plan> plan_;
  std::vector<const Op*> forward_, backward_;
};

TEST_F(NeedsTest, AreExactlyWhatBackwardReads) {
  std::set<std::string_view> seen;
  int masks = 0;
  int outputs = 0;
  for (const Op& op : model_.graph.ops()) {
    // No gradient is wanted of images, nor through the first layer.
    if (op.name == "normalize" || op.name == "first") continue;
    SCOPED_TRACE(op.name);
    seen.insert(op.def->name());
    const BackwardNeeds needs = op.def->Needs();
    const Reads reads = ReadsOf(op);
    EXPECT_EQ(reads.inputs, needs.inputs);
    if (needs.output_bits) {
      // Either the output or its bits, never both.
      EXPECT_NE(reads.output, reads.saved);
      ++(reads.saved ? masks : outputs);
    } else {
      EXPECT_EQ(reads.output, needs.output);
      EXPECT_EQ(reads.saved, needs.saved);
    }
  }
  EXPECT_EQ(masks, 1);
  EXPECT_EQ(outputs, 1);
  // Every op that a network can hold, but for Normalize.
  EXPECT_EQ(seen.size(), 13u);
}

TEST_F(NeedsTest, OfSequencesAreExactlyWhatBackwardReads) {
  Use(EverySequenceOp());
  std::set<std::string_view> seen;
  for (const Op& op : model_.graph.ops()) {
    const bool lstm = Is<ops::LstmGates>(op) || Is<ops::LstmCell>(op);
    if (!lstm) continue;
    SCOPED_TRACE(op.name);
    seen.insert(op.def->name());
    const BackwardNeeds needs = op.def->Needs();
    const Reads reads = ReadsOf(op);
    EXPECT_EQ(reads.inputs, needs.inputs);
    EXPECT_EQ(reads.output, needs.output);
    EXPECT_EQ(reads.saved, needs.saved);
  }
  EXPECT_EQ(seen.size(), 2u);
}

TEST_F(NeedsTest, OfTheFirstLayerAreReadOnlyForItsWeights) {
  for (const Op* op : backward_) {
    EXPECT_NE(op->name, "first.grad_x") << "the gradient of images is made";
  }
}

}  // namespace
}  // namespace thimble::testing
