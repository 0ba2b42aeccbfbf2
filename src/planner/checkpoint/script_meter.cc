// SPDX-License-Identifier: Apache-2.0
#include "planner/checkpoint/script_meter.h"

#include <algorithm>

#include "base/check.h"
#include "base/workspace.h"
#include "graph/op.h"
#include "planner/buffers.h"
#include "planner/schedule.h"

namespace thimble::planner {
namespace {

// An instance that is not counted: it is lasting.
constexpr uint32_t kLasting = UINT32_MAX;

}  // namespace

ScriptMeter::ScriptMeter(const Program& program, const PlanOptions& options)
    : fed_{program.train.images, program.train.labels} {
  for (const Value& value : program.graph.values()) {
    bytes_.push_back(
        static_cast<int64_t>(RoundUpToAlignment(value.spec.bytes())));
  }
  FindLasting(program);
  first_.resize(program.graph.ops().size());
  again_.resize(program.graph.ops().size());
  for (OpId op : program.phases[static_cast<size_t>(Phase::kMicrobatch)]) {
    first_[op.i] = MakeRun(program, options, op, /*again=*/false);
    if (program.origins[op.i].part != OpOrigin::Part::kForward) continue;
    again_[op.i] = MakeRun(program, options, op, /*again=*/true);
  }
  MeasureOtherPhases(program, options);
  current_.resize(program.graph.values().size());
  has_run_.resize(program.graph.ops().size());
}

void ScriptMeter::FindLasting(const Program& program) {
  const auto values = program.graph.values();
  lasting_.resize(values.size());
  read_later_.resize(values.size());
  for (uint32_t i = 0; i < values.size(); ++i) {
    const bool is_state =
        !values[i].producer.valid() && values[i].role != Role::kInput;
    lasting_[i] = is_state;
  }
  for (OpId op : program.phases[static_cast<size_t>(Phase::kUpdate)]) {
    for (ValueId v : program.graph.op(op).inputs) {
      read_later_[v.i] = true;
      if (program.microbatches > 1) lasting_[v.i] = true;
    }
  }
  // The host reads them after the step.
  read_later_[program.train.loss.i] = true;
  read_later_[program.train.correct.i] = true;
  for (uint32_t i = 0; i < values.size(); ++i) {
    if (lasting_[i]) lasting_bytes_ += bytes_[i];
  }
}

OpRun ScriptMeter::MakeRun(const Program& program, const PlanOptions& options,
                           OpId id, bool again) const {
  const Graph& graph = program.graph;
  const Op& op = graph.op(id);
  OpRun run{.inputs = op.inputs, .outputs = op.outputs};
  std::shared_ptr<const OpDef> def = op.def;
  if (again) {
    const RepeatForm form = op.def->Repeat();
    def = form.def;
    if (form.reads_saved) {
      run.inputs.insert(run.inputs.end(), op.outputs.begin() + 1,
                        op.outputs.end());
    }
  }
  std::vector<ValueSpec> inputs;
  for (ValueId v : run.inputs) inputs.push_back(graph.value(v).spec);
  const auto outputs = def->Infer(inputs);
  TH_CHECK(outputs.ok() && outputs->size() <= run.outputs.size());
  run.outputs.resize(outputs->size());
  run.is_view = def->IsView();
  run.flops = def->Flops(inputs, *outputs);
  run.scratch = static_cast<int64_t>(
      TotalBytes(def->Scratch(inputs, *outputs), options.threads));
  if (!options.inplace || run.is_view) return run;
  const std::vector<InPlacePair> pairs = def->InPlace();
  for (const InPlacePair& pair : pairs) {
    const ValueId out = run.outputs[pair.output];
    if (MayOverwrite(run.inputs, pairs, pair) &&
        inputs[pair.input].bytes() == (*outputs)[pair.output].bytes() &&
        !lasting_[run.inputs[pair.input].i] && !lasting_[out.i]) {
      run.in_place.push_back(pair);
    }
  }
  return run;
}

// Scripts do not change them: what they find is what the update reads.
void ScriptMeter::MeasureOtherPhases(const Program& program,
                                     const PlanOptions& options) {
  std::vector<ScheduledOp> schedule = MakeSchedule(program);
  std::vector<int64_t> change(schedule.size() + 1, 0);
  for (const Buffer& b : MakeBuffers(program, options, schedule).buffers) {
    change[b.live.begin] += static_cast<int64_t>(b.bytes);
    change[b.live.end] -= static_cast<int64_t>(b.bytes);
  }
  int64_t live = 0;
  for (size_t t = 0; t < schedule.size(); ++t) {
    live += change[t];
    if (schedule[t].phase != Phase::kMicrobatch) {
      other_phases_ = std::max(other_phases_, live);
    }
  }
}

void ScriptMeter::FindRuns(const Script& script) {
  std::fill(has_run_.begin(), has_run_.end(), false);
  runs_.clear();
  for (OpId op : script) {
    runs_.push_back(has_run_[op.i] ? &again_[op.i] : &first_[op.i]);
    has_run_[op.i] = true;
  }
}

// Which run's result each run reads, and who reads it last.
void ScriptMeter::FindInstances() {
  std::fill(current_.begin(), current_.end(), kLasting);
  instances_.clear();
  touched_.clear();
  const auto add = [&](ValueId v, uint32_t last) {
    current_[v.i] = static_cast<uint32_t>(instances_.size());
    instances_.push_back({bytes_[v.i], last});
  };
  for (ValueId v : fed_) add(v, 0);
  for (uint32_t t = 0; t < runs_.size(); ++t) {
    const OpRun& run = *runs_[t];
    for (ValueId v : run.inputs) {
      touched_.push_back(current_[v.i]);
      if (current_[v.i] != kLasting) instances_[current_[v.i]].last = t;
    }
    for (ValueId v : run.outputs) {
      if (run.is_view) {
        current_[v.i] = current_[run.inputs[0].i];
      } else if (!lasting_[v.i]) {
        add(v, t);
      }
      touched_.push_back(current_[v.i]);
    }
  }
  for (uint32_t i = 0; i < current_.size(); ++i) {
    if (read_later_[i] && current_[i] != kLasting) {
      instances_[current_[i]].last = static_cast<uint32_t>(runs_.size());
    }
  }
}

// Bytes of outputs that are written over inputs, by the rule of MakeBuffers:
// each output takes the first input that offers itself and is read last here.
int64_t ScriptMeter::OverwrittenBytes(const OpRun& run, uint32_t time,
                                      const uint32_t* inputs,
                                      const uint32_t* outputs) const {
  int64_t shared = 0;
  uint32_t taken = 0;
  uint32_t placed = 0;
  for (const InPlacePair& pair : run.in_place) {
    if (((taken >> pair.input) & 1) != 0) continue;
    if (((placed >> pair.output) & 1) != 0) continue;
    const uint32_t in = inputs[pair.input];
    if (in == kLasting || instances_[in].last != time) continue;
    taken |= 1u << pair.input;
    placed |= 1u << pair.output;
    shared += instances_[outputs[pair.output]].bytes;
  }
  return shared;
}

int64_t ScriptMeter::MostLive() {
  int64_t live = lasting_bytes_;
  for (ValueId v : fed_) live += bytes_[v.i];
  int64_t most = other_phases_;
  const uint32_t* touched = touched_.data();
  for (uint32_t t = 0; t < runs_.size(); ++t) {
    const OpRun& run = *runs_[t];
    const uint32_t* outputs = touched + run.inputs.size();
    const uint32_t* end = outputs + run.outputs.size();
    if (!run.is_view) {
      for (const uint32_t* i = outputs; i < end; ++i) {
        if (*i != kLasting) live += instances_[*i].bytes;
      }
    }
    const int64_t shared = OverwrittenBytes(run, t, touched, outputs);
    most = std::max(most, live - shared + run.scratch);
    for (; touched < end; ++touched) {
      if (*touched == kLasting || instances_[*touched].last != t) continue;
      live -= instances_[*touched].bytes;
      // It may be listed twice.
      instances_[*touched].last = UINT32_MAX;
    }
  }
  return most;
}

ScriptCosts ScriptMeter::Measure(const Script& script) {
  FindRuns(script);
  FindInstances();
  ScriptCosts costs;
  costs.most_live = static_cast<size_t>(MostLive());
  for (const OpRun* run : runs_) costs.flops += run->flops;
  return costs;
}

}  // namespace thimble::planner
