// SPDX-License-Identifier: Apache-2.0
//
// What an op says that its backward reads (OpDef::Needs) is what the ops of its
// backward read: less would let the planner drop a value too early, more would
// keep bytes for nothing. For every op of the oracle, and what they fuse to.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/op.h"
#include "planner/fuse.h"
#include "planner/program.h"
#include "sample_nets.h"
#include "thimble/network.h"

namespace thimble::testing {
namespace {

using Part = planner::OpOrigin::Part;

// Which values of the forward pass the backward ops of one op read.
struct Reads {
  uint32_t inputs = 0;
  bool output = false;
  bool saved = false;
};

class Differentiated {
 public:
  explicit Differentiated(const Model& model)
      : model_(model), program_(planner::Differentiate(model, {}, 1)) {
    for (uint32_t i = 0; i < program_.graph.values().size(); ++i) {
      const Value& value = program_.graph.values()[i];
      if (OriginOf({i}).part != Part::kBackward) by_name_[value.name] = {i};
    }
    for (const Value& v : model.graph.values()) {
      learned_.push_back(v.role == Role::kParameter);
    }
    for (const Op& op : model.graph.ops()) {
      const bool any = std::ranges::any_of(
          op.inputs, [&](ValueId v) { return learned_[v.i]; });
      for (ValueId v : op.outputs) learned_[v.i] = any;
    }
  }

  // Whether all gradients that the op could make are wanted: not where its
  // input is made of images alone.
  bool AllWanted(const Op& op) const {
    return std::ranges::all_of(op.inputs, [&](ValueId v) {
      const Role role = model_.graph.value(v).role;
      return learned_[v.i] || role == Role::kInput || role == Role::kStatistic;
    });
  }

  Reads ReadsOf(uint32_t model_op) const {
    const Op& op = model_.graph.ops()[model_op];
    Reads reads;
    for (size_t k = 0; k < program_.graph.ops().size(); ++k) {
      const planner::OpOrigin& origin = program_.origins[k];
      if (origin.part != Part::kBackward || origin.source != model_op) continue;
      for (ValueId v : program_.graph.ops()[k].inputs) {
        if (OriginOf(v).part != Part::kBackward) Note(op, model_op, v, reads);
      }
    }
    return reads;
  }

 private:
  planner::OpOrigin OriginOf(ValueId v) const {
    const OpId producer = program_.graph.value(v).producer;
    return producer.valid() ? program_.origins[producer.i]
                            : planner::OpOrigin{};
  }

  // The model's value in training. Those of the evaluation are called
  // otherwise.
  ValueId At(ValueId v) const {
    const auto found = by_name_.find(model_.graph.value(v).name);
    EXPECT_TRUE(found != by_name_.end()) << model_.graph.value(v).name;
    return found == by_name_.end() ? ValueId{} : found->second;
  }

  void Note(const Op& op, uint32_t model_op, ValueId v, Reads& reads) const {
    bool own = false;
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      if (At(op.inputs[k]) != v) continue;
      reads.inputs |= 1u << k;
      own = true;
    }
    if (own) return;
    if (At(op.outputs[0]) == v) {
      reads.output = true;
      return;
    }
    // An extra value of the op's own, or the statistics of its input.
    reads.saved = true;
    const planner::OpOrigin origin = OriginOf(v);
    const Value& value = program_.graph.value(v);
    EXPECT_TRUE((origin.part == Part::kForward && origin.source == model_op) ||
                value.role == Role::kStatistic)
        << op.name << "'s backward reads " << value.name
        << ", which is not its forward op's";
  }

  const Model& model_;
  planner::Program program_;
  std::map<std::string, ValueId> by_name_;
  std::vector<bool> learned_;  // by the model's values
};

// Of inputs that are one value, a need of one is a need of all.
uint32_t ReadableInputs(const Op& op, uint32_t needed) {
  uint32_t inputs = 0;
  for (size_t k = 0; k < op.inputs.size(); ++k) {
    for (size_t l = 0; l < op.inputs.size(); ++l) {
      if (op.inputs[k] != op.inputs[l]) continue;
      if (((needed >> l) & 1) != 0) inputs |= 1u << k;
    }
  }
  return inputs;
}

// How often a form of an op was met.
struct Met {
  int bits = 0;     // of the output
  int outputs = 0;  // instead of them
  std::set<std::string> ops;
};

void ExpectExactNeeds(const Model& model, Met& met) {
  const Differentiated differentiated(model);
  for (uint32_t k = 0; k < model.graph.ops().size(); ++k) {
    const Op& op = model.graph.ops()[k];
    SCOPED_TRACE(op.name);
    const BackwardNeeds needs = op.def->Needs();
    const uint32_t inputs = ReadableInputs(op, needs.inputs);
    const Reads reads = differentiated.ReadsOf(k);
    EXPECT_EQ(reads.inputs & ~inputs, 0u) << "reads more than it says";
    if (!differentiated.AllWanted(op)) continue;
    met.ops.emplace(op.def->name());
    EXPECT_EQ(reads.inputs, inputs);
    if (needs.output_bits) {
      // Either the output or its bits, never both.
      EXPECT_NE(reads.output, reads.saved);
      ++(reads.saved ? met.bits : met.outputs);
    } else {
      EXPECT_EQ(reads.output, needs.output);
      EXPECT_EQ(reads.saved, needs.saved);
    }
  }
}

TEST(Needs, AreExactlyWhatBackwardReads) {
  Met met;
  std::set<std::string> ops;
  ForEachSampleNet(2, kAllAround, [&](const SampleNet& net) {
    ExpectExactNeeds(net.model, met);
    for (const Op& op : net.model.graph.ops()) ops.emplace(op.def->name());
    const Model fused = planner::Fuse(net.model);
    for (const Op& op : fused.graph.ops()) ops.emplace(op.def->name());
    SCOPED_TRACE("fused");
    ExpectExactNeeds(fused, met);
  });
  EXPECT_GT(met.bits, 0);
  EXPECT_GT(met.outputs, 0);
  EXPECT_EQ(met.ops, ops) << "an op stands nowhere with all gradients wanted";
}

TEST(Needs, OfTheFirstLayerAreReadOnlyForItsWeights) {
  Network net("first", 2);
  ValueId x = net.Images({.channels = 1, .height = 5, .width = 5});
  x = net.Conv2d("first", x, {.channels = 2});
  const Result<Model> model = net.Finish(net.Linear("fc", net.Flatten(x), 3));
  ASSERT_TRUE(model.ok()) << model.status().message();
  const planner::Program program = planner::Differentiate(*model, {}, 1);
  for (const Op& op : program.graph.ops()) {
    EXPECT_NE(op.name, "first.grad_x") << "the gradient of images is made";
  }
}

}  // namespace
}  // namespace thimble::testing
