// SPDX-License-Identifier: Apache-2.0
#include "planner/recompute/script_meter.h"

#include <algorithm>

#include "base/check.h"
#include "base/workspace.h"
#include "graph/op.h"
#include "planner/placed_buffers.h"
#include "planner/sparse_pool.h"

namespace thimble::planner {
namespace {

// An instance that is not counted: it is lasting.
constexpr uint32_t kLasting = UINT32_MAX;

}  // namespace

ScriptMeter::ScriptMeter(const Program& program, const PlanOptions& options)
    : values_(FindLasting(program)) {
  for (const Value& value : program.graph.values()) {
    bytes_.push_back(
        static_cast<int64_t>(RoundUpToAlignment(value.spec.bytes())));
  }
  const std::vector<ValueId> pools = PoolsOf(program);
  for (uint32_t i = 0; i < bytes_.size(); ++i) {
    // Where a pool is there all the time, so are its members, in it.
    if (pools[i].valid() && IsLasting(pools[i])) bytes_[i] = 0;
    if (IsLasting({i})) lasting_bytes_ += bytes_[i];
  }
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
        !IsLasting(run.inputs[pair.input]) && !IsLasting(out)) {
      run.in_place.push_back(pair);
    }
  }
  return run;
}

// Scripts do not change them: what they find is what the update reads.
void ScriptMeter::MeasureOtherPhases(const Program& program,
                                     const PlanOptions& options) {
  const std::vector<size_t> live = LiveBytes(program, options);
  for (size_t t =
           program.phases[static_cast<size_t>(Phase::kMicrobatch)].size();
       t < live.size(); ++t) {
    other_phases_ = std::max(other_phases_, static_cast<int64_t>(live[t]));
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
  const auto add = [&](ValueId v, uint32_t time) {
    current_[v.i] = static_cast<uint32_t>(instances_.size());
    instances_.push_back({bytes_[v.i], time, time});
  };
  for (ValueId v : values_.fed) add(v, 0);
  for (uint32_t t = 0; t < runs_.size(); ++t) {
    const OpRun& run = *runs_[t];
    for (ValueId v : run.inputs) {
      touched_.push_back(current_[v.i]);
      if (current_[v.i] != kLasting) instances_[current_[v.i]].last = t;
    }
    for (ValueId v : run.outputs) {
      if (run.is_view) {
        current_[v.i] = current_[run.inputs[0].i];
      } else if (!IsLasting(v)) {
        add(v, t);
      }
      touched_.push_back(current_[v.i]);
    }
  }
  for (uint32_t i = 0; i < current_.size(); ++i) {
    if (values_.read_later[i] && current_[i] != kLasting) {
      instances_[current_[i]].last = static_cast<uint32_t>(runs_.size());
    }
  }
}

// An output that is written over an input, which is read for the last time,
// takes bytes of its own from the next run on.
void ScriptMeter::ShareBytes() {
  const uint32_t* inputs = touched_.data();
  for (uint32_t t = 0; t < runs_.size(); ++t) {
    const OpRun& run = *runs_[t];
    const uint32_t* outputs = inputs + run.inputs.size();
    ChooseOverwritten(
        run.in_place,
        [&](const InPlacePair& pair) {
          const uint32_t in = inputs[pair.input];
          return in != kLasting && instances_[in].last == t;
        },
        [&](const InPlacePair& pair) {
          instances_[outputs[pair.output]].first = t + 1;
        });
    inputs = outputs + run.outputs.size();
  }
}

size_t ScriptMeter::MostLive() {
  const auto times = static_cast<uint32_t>(runs_.size());
  live_.Reset(times);
  live_.Add({0, times}, static_cast<size_t>(lasting_bytes_));
  for (const Instance& instance : instances_) {
    // What is read behind the last run lives to its end.
    live_.Add({instance.first, std::min(instance.last + 1, times)},
              static_cast<size_t>(instance.bytes));
  }
  for (uint32_t t = 0; t < times; ++t) {
    live_.Add({t, t + 1}, static_cast<size_t>(runs_[t]->scratch));
  }
  return std::max(static_cast<size_t>(other_phases_), live_.Most());
}

ScriptCosts ScriptMeter::Measure(const Script& script) {
  FindRuns(script);
  FindInstances();
  ShareBytes();
  ScriptCosts costs;
  costs.most_live = MostLive();
  for (const OpRun* run : runs_) costs.flops += run->flops;
  return costs;
}

}  // namespace thimble::planner
