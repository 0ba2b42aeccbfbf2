// SPDX-License-Identifier: Apache-2.0
#include "planner/recompute/script.h"

#include <algorithm>

#include "base/check.h"

namespace thimble::planner {
namespace {

bool Contains(std::span<const ValueId> values, ValueId v) {
  return std::find(values.begin(), values.end(), v) != values.end();
}

}  // namespace

ScriptWriter::ScriptWriter(const Program& program, const Chain& chain)
    : program_(program), chain_(chain) {
  const size_t values = program.graph.values().size();
  there_.resize(values);
  for (uint32_t i = 0; i < values; ++i) {
    there_[i] = !IsRecomputable(program, ValueId{i});
  }
  has_run_.resize(chain.stages.size());
}

void ScriptWriter::Run(OpId id) {
  const Op& op = program_.graph.op(id);
  for (ValueId v : op.inputs) Ensure(v);
  script_.push_back(id);
  for (ValueId v : op.outputs) {
    if (there_[v.i]) continue;
    there_[v.i] = true;
    made_.push_back(v);
  }
}

void ScriptWriter::Ensure(ValueId v) {
  if (!there_[v.i]) Run(program_.graph.value(v).producer);
}

bool ScriptWriter::IsThere(std::span<const ValueId> values) const {
  return std::all_of(values.begin(), values.end(),
                     [this](ValueId v) { return there_[v.i]; });
}

void ScriptWriter::ForwardAndKeep(size_t stage) {
  if (!has_run_[stage]) {
    has_run_[stage] = true;
    for (OpId op : chain_.stages[stage].forward) Run(op);
  } else {
    for (ValueId v : chain_.stages[stage].carried) Ensure(v);
  }
}

void ScriptWriter::Forward(size_t stage, std::span<const ValueId> keep) {
  made_.clear();
  ForwardAndKeep(stage);
  for (ValueId v : keep) Ensure(v);
  const std::vector<ValueId>& carried = chain_.stages[stage].carried;
  for (ValueId v : made_) {
    if (Contains(carried, v) || Contains(keep, v)) continue;
    Forget(v);
  }
}

void ScriptWriter::Advance(size_t begin, size_t end,
                           std::span<const ValueId> keep) {
  TH_CHECK(begin < end);
  if (has_run_[end - 1] && IsThere(chain_.stages[end - 1].carried) &&
      IsThere(keep)) {
    return;
  }
  for (size_t s = begin; s < end; ++s) {
    Forward(s, s + 1 == end ? keep : std::span<const ValueId>{});
    if (s == begin) continue;
    for (ValueId v : chain_.stages[s - 1].carried) {
      if (!Contains(chain_.stages[s].carried, v)) Forget(v);
    }
  }
}

void ScriptWriter::Backward(size_t stage) {
  for (OpId op : chain_.stages[stage].backward) Run(op);
}

namespace {

class SegmentWriter {
 public:
  SegmentWriter(const Program& program, const Chain& chain,
                const SegmentPlan& plan)
      : writer_(program, chain), stages_(chain.stages.size()), plan_(plan) {}

  Script Write() {
    FirstPass(plan_.root);
    for (size_t s = plan_.root.end; s < stages_; ++s) writer_.ForwardAndKeep(s);
    for (size_t s = stages_; s-- > plan_.root.end;) writer_.Backward(s);
    Backward(plan_.root);
    return writer_.Take();
  }

 private:
  void FirstPass(const Segment& segment) {
    if (segment.parts.empty()) {
      if (!plan_.keep_last) {
        writer_.Advance(segment.begin, segment.end);
        return;
      }
      for (size_t s = segment.begin; s < segment.end; ++s) {
        writer_.ForwardAndKeep(s);
      }
      return;
    }
    MakeCuts(segment);
    const Segment& last = segment.parts.back();
    if (plan_.keep_last) {
      FirstPass(last);
    } else {
      writer_.Advance(last.begin, last.end);
    }
  }

  // What is carried on between the parts.
  void MakeCuts(const Segment& segment) {
    for (size_t k = 0; k + 1 < segment.parts.size(); ++k) {
      writer_.Advance(segment.parts[k].begin, segment.parts[k].end);
    }
  }

  void Backward(const Segment& segment) {
    if (segment.parts.empty()) {
      for (size_t s = segment.end; s-- > segment.begin;) writer_.Backward(s);
      return;
    }
    MakeCuts(segment);
    for (size_t k = segment.parts.size(); k-- > 0;) {
      Backward(segment.parts[k]);
    }
  }

  ScriptWriter writer_;
  size_t stages_;
  const SegmentPlan& plan_;
};

}  // namespace

Script WriteScript(const Program& program, const Chain& chain,
                   const SegmentPlan& plan) {
  return SegmentWriter(program, chain, plan).Write();
}

}  // namespace thimble::planner
