// SPDX-License-Identifier: Apache-2.0
//
// Programs written by hand, small enough to count their bytes on paper. Sizes
// are in units of 64 bytes, the alignment, so that nothing is rounded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/workspace.h"
#include "graph/test_op.h"
#include "planner/program.h"
#include "thimble/plan.h"

namespace thimble::planner::testing {

using thimble::testing::TestOp;
using thimble::testing::TestOpTraits;

inline constexpr size_t kUnit = kAlignment;

inline ValueSpec Units(int64_t units) {
  return {{units * static_cast<int64_t>(kUnit / sizeof(float))}, DType::kF32};
}

class TestProgram {
 public:
  ValueId State(const std::string& name, int64_t units,
                Role role = Role::kParameter) {
    return program.graph.AddValue(name, Units(units), role);
  }
  ValueId Input(const std::string& name, int64_t units) {
    return program.graph.AddValue(name, Units(units), Role::kInput);
  }

  // Ops with one output per entry of `units`; `traits` has everything else.
  std::vector<ValueId> Forward(const std::string& name,
                               std::vector<ValueId> inputs,
                               const std::vector<int64_t>& units,
                               TestOpTraits traits = {},
                               Role role = Role::kActivation) {
    return Add(Phase::kMicrobatch, {OpOrigin::Part::kForward, sources_++}, name,
               std::move(inputs), units, std::move(traits), role);
  }
  // `source`: of which forward op it is, counted from 0.
  std::vector<ValueId> Backward(uint32_t source, const std::string& name,
                                std::vector<ValueId> inputs,
                                const std::vector<int64_t>& units,
                                TestOpTraits traits = {},
                                Role role = Role::kActivationGradient) {
    return Add(Phase::kMicrobatch, {OpOrigin::Part::kBackward, source}, name,
               std::move(inputs), units, std::move(traits), role);
  }
  std::vector<ValueId> Other(Phase phase, const std::string& name,
                             std::vector<ValueId> inputs,
                             const std::vector<int64_t>& units) {
    return Add(phase, {}, name, std::move(inputs), units, {},
               Role::kActivation);
  }

  void TrainEnds(ValueId images, ValueId labels, ValueId loss,
                 ValueId correct) {
    program.train = {.feeds = {{"images", images}, {"labels", labels}},
                     .outputs = {},
                     .loss = loss,
                     .metrics = {{"accuracy", correct}}};
  }
  void EvaluateEnds(ValueId images, ValueId labels, ValueId logits,
                    ValueId loss, ValueId correct) {
    program.evaluate = {.feeds = {{"images", images}, {"labels", labels}},
                        .outputs = {{"logits", logits}},
                        .loss = loss,
                        .metrics = {{"accuracy", correct}}};
  }

  Program program;

 private:
  std::vector<ValueId> Add(Phase phase, const OpOrigin& origin,
                           const std::string& name, std::vector<ValueId> inputs,
                           const std::vector<int64_t>& units,
                           TestOpTraits traits, Role role) {
    for (int64_t u : units) traits.outputs.push_back(Units(u));
    const OpId id{static_cast<uint32_t>(program.graph.ops().size())};
    auto made =
        program.graph.AddOp(name, std::make_shared<TestOp>(std::move(traits)),
                            std::move(inputs), role);
    program.phases[static_cast<size_t>(phase)].push_back(id);
    program.origins.push_back(origin);
    return *made;
  }

  uint32_t sources_ = 0;
};

// images ──f1──► x1 ──f2──► … ──► xN ──loss, and back: the gradient of fK reads
// what fK read. x and gradients take 4 units each, everything else 1; fK takes
// 10 * K FLOPs, its gradient twice that, the loss 1. f1 has the one parameter,
// w.
inline Program StraightProgram(int stages, const TestOpTraits& gradient = {},
                               int64_t microbatches = 1) {
  TestProgram t;
  const ValueId w = t.State("w", 1);
  const ValueId images = t.Input("images", 1);
  const ValueId labels = t.Input("labels", 1);
  std::vector<ValueId> x = {images};
  const auto named = [](const char* before, int k, const char* behind = "") {
    return before + std::to_string(k) + behind;
  };
  for (int k = 1; k <= stages; ++k) {
    std::vector<ValueId> inputs = {x.back()};
    if (k == 1) inputs.push_back(w);
    x.push_back(t.Forward(named("f", k), inputs, {4}, {.flops = 10 * k})[0]);
  }
  const auto ends = t.Forward("loss", {x.back(), labels}, {1, 1}, {.flops = 1},
                              Role::kStatistic);
  t.TrainEnds(images, labels, ends[0], ends[1]);
  const auto source = static_cast<uint32_t>(stages);
  ValueId g =
      t.Backward(source, "loss.grad", {x.back(), labels}, {4}, {.flops = 1})[0];
  for (int k = stages; k > 1; --k) {
    TestOpTraits traits = gradient;
    traits.flops = 20 * k;
    g = t.Backward(static_cast<uint32_t>(k - 1), named("f", k, ".grad"),
                   {x[static_cast<size_t>(k - 1)], g}, {4}, traits)[0];
  }
  g = t.Backward(0, "f1.grad", {images, g}, {1}, {.flops = 20},
                 Role::kGradient)[0];
  t.Other(Phase::kUpdate, "w.update", {w, g}, {});
  const ValueId to_test = t.Input("eval.images", 1);
  const ValueId test_labels = t.Input("eval.labels", 1);
  const auto told =
      t.Other(Phase::kEvaluate, "eval", {to_test, test_labels, w}, {1, 1, 1});
  t.EvaluateEnds(to_test, test_labels, told[0], told[1], told[2]);
  t.program.microbatches = microbatches;
  return std::move(t.program);
}

// The op of that name.
inline OpId OpNamed(const Program& program, std::string_view name) {
  for (uint32_t i = 0; i < program.graph.ops().size(); ++i) {
    if (program.graph.ops()[i].name == name) return {i};
  }
  return {};
}

// "f1 f2 loss": the names of ops, in their order.
inline std::string NamesOf(const Program& program,
                           const std::vector<OpId>& ops) {
  std::string names;
  for (OpId op : ops) {
    if (!names.empty()) names += ' ';
    names += program.graph.op(op).name;
  }
  return names;
}

// The other way round.
inline std::vector<OpId> OpsNamed(const Program& program,
                                  std::string_view names) {
  std::vector<OpId> ops;
  for (size_t at = 0; at < names.size();) {
    const size_t end = std::min(names.find(' ', at), names.size());
    ops.push_back(OpNamed(program, names.substr(at, end - at)));
    at = end + 1;
  }
  return ops;
}

}  // namespace thimble::planner::testing
