// SPDX-License-Identifier: Apache-2.0
#include "planner/checkpoint/rewrite.h"

#include <fmt/format.h>

#include "base/check.h"
#include "graph/op.h"

namespace thimble::planner {
namespace {

class Rewriter {
 public:
  explicit Rewriter(const Program& source) : source_(source) {
    const auto values = source.graph.values();
    current_.resize(values.size());
    runs_.resize(source.graph.ops().size());
    for (uint32_t i = 0; i < values.size(); ++i) {
      const Value& v = values[i];
      if (v.producer.valid()) continue;
      current_[i] = made_.graph.AddValue(v.name, v.spec, v.role, v.init);
    }
  }

  Program Run(const Script& script) {
    for (size_t phase = 0; phase < kPhases; ++phase) {
      phase_ = phase;
      const bool is_scripted = phase == static_cast<size_t>(Phase::kMicrobatch);
      for (OpId op : is_scripted ? script : source_.phases[phase]) Add(op);
    }
    for (uint32_t runs : runs_) TH_CHECK(runs > 0);
    made_.microbatches = source_.microbatches;
    made_.train = EndsOf(source_.train);
    made_.evaluate = EndsOf(source_.evaluate);
    for (const ParameterState& p : source_.parameters) {
      made_.parameters.push_back(
          {Now(p.parameter), Now(p.gradient), Now(p.velocity)});
    }
    for (ValueId v : source_.statistics) made_.statistics.push_back(Now(v));
    return std::move(made_);
  }

 private:
  ValueId Now(ValueId v) const { return v.valid() ? current_[v.i] : v; }

  PhaseEnds EndsOf(const PhaseEnds& ends) const {
    return {Now(ends.images), Now(ends.labels), Now(ends.logits),
            Now(ends.loss), Now(ends.correct)};
  }

  void Add(OpId id) {
    const Op& op = source_.graph.op(id);
    const uint32_t run = runs_[id.i]++;
    std::vector<ValueId> inputs;
    for (ValueId v : op.inputs) inputs.push_back(Now(v));
    OpOrigin origin = source_.origins[id.i];
    if (run == 0) {
      AddOp(op.name, op.def, std::move(inputs), op, origin);
      return;
    }
    TH_CHECK(origin.part == OpOrigin::Part::kForward);
    origin.part = OpOrigin::Part::kRecompute;
    const RepeatForm form = op.def->Repeat();
    if (form.reads_saved) {
      for (size_t k = 1; k < op.outputs.size(); ++k) {
        inputs.push_back(Now(op.outputs[k]));
      }
    }
    const std::string number = run == 1 ? "" : std::to_string(run);
    AddOp(op.name + ".again" + number, form.def, std::move(inputs), op, origin);
  }

  void AddOp(std::string name, std::shared_ptr<const OpDef> def,
             std::vector<ValueId> inputs, const Op& op,
             const OpOrigin& origin) {
    const OpId id{static_cast<uint32_t>(made_.graph.ops().size())};
    auto outputs = made_.graph.AddOp(std::move(name), std::move(def),
                                     std::move(inputs), Role::kActivation);
    TH_CHECK(outputs.ok() && outputs->size() <= op.outputs.size());
    for (size_t k = 0; k < outputs->size(); ++k) {
      current_[op.outputs[k].i] = (*outputs)[k];
      made_.graph.SetRole((*outputs)[k],
                          source_.graph.value(op.outputs[k]).role);
    }
    made_.origins.push_back(origin);
    made_.phases[phase_].push_back(id);
  }

  const Program& source_;
  Program made_;
  size_t phase_ = 0;
  std::vector<ValueId> current_;  // per value of the source: its latest run's
  std::vector<uint32_t> runs_;    // per op of the source
};

}  // namespace

Program Rewrite(const Program& program, const Script& script) {
  return Rewriter(program).Run(script);
}

}  // namespace thimble::planner
