// SPDX-License-Identifier: Apache-2.0
#include "planner/program_copy.h"

#include <utility>

#include "base/check.h"
#include "graph/op.h"

namespace thimble::planner {

ProgramCopy::ProgramCopy(const Program& source) : source_(source) {
  const auto values = source.graph.values();
  now_.resize(values.size());
  for (uint32_t i = 0; i < values.size(); ++i) {
    const Value& v = values[i];
    if (v.producer.valid()) continue;
    now_[i] = made_.graph.AddValue(v.name, v.spec, v.role, v.init);
  }
}

OpId ProgramCopy::AddOp(std::string name, std::shared_ptr<const OpDef> def,
                        const std::vector<ValueId>& inputs,
                        const std::vector<ValueId>& outputs) {
  const OpId id{static_cast<uint32_t>(made_.graph.ops().size())};
  std::vector<ValueId> mapped;
  mapped.reserve(inputs.size());
  for (ValueId v : inputs) mapped.push_back(Now(v));
  auto made = made_.graph.AddOp(std::move(name), std::move(def),
                                std::move(mapped), Role::kActivation);
  TH_CHECK(made.ok() && made->size() <= outputs.size());
  for (size_t k = 0; k < made->size(); ++k) {
    now_[outputs[k].i] = (*made)[k];
    made_.graph.SetRole((*made)[k], source_.graph.value(outputs[k]).role);
  }
  return id;
}

PhaseEnds ProgramCopy::EndsOf(const PhaseEnds& ends) const {
  return {Now(ends.images), Now(ends.labels), Now(ends.logits), Now(ends.loss),
          Now(ends.correct)};
}

Program ProgramCopy::Take() {
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

}  // namespace thimble::planner
