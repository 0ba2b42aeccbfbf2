// SPDX-License-Identifier: Apache-2.0
#include "planner/recompute/edit_runs.h"

#include <algorithm>
#include <utility>

namespace thimble::planner {
namespace {

class RunDelayer {
 public:
  RunDelayer(const Program& program, const ScriptMeter& meter)
      : program_(program), meter_(meter) {
    has_run_.resize(program.graph.ops().size());
    is_due_.resize(program.graph.ops().size());
  }

  Script Delay(const Script& script) {
    for (OpId op : script) {
      if (has_run_[op.i]) {
        is_due_[op.i] = true;
        continue;
      }
      has_run_[op.i] = true;
      RunWhatIsDue(meter_.First(op));
      delayed_.push_back(op);
    }
    return std::move(delayed_);
  }

 private:
  // What `run` reads, from the first of them on.
  void RunWhatIsDue(const OpRun& run) {
    for (ValueId v : run.inputs) {
      const OpId producer = program_.graph.value(v).producer;
      if (!producer.valid() || !is_due_[producer.i]) continue;
      is_due_[producer.i] = false;
      RunWhatIsDue(meter_.Again(producer));
      delayed_.push_back(producer);
    }
  }

  const Program& program_;
  const ScriptMeter& meter_;
  std::vector<bool> has_run_;  // per op
  std::vector<bool> is_due_;   // per op: should have run again by now
  Script delayed_;
};

class RunPruner {
 public:
  RunPruner(const Program& program, ScriptMeter& meter, const Script& script)
      : program_(program), meter_(meter), script_(script) {
    std::vector<bool> has_run(program.graph.ops().size());
    for (uint32_t i = 0; i < script.size(); ++i) {
      if (has_run[script[i].i]) again_.push_back(i);
      is_first_.push_back(!has_run[script[i].i]);
      has_run[script[i].i] = true;
    }
    std::stable_sort(again_.begin(), again_.end(), [&](uint32_t a, uint32_t b) {
      return meter.Again(script[a]).flops > meter.Again(script[b]).flops;
    });
  }

  Script Prune(size_t limit) {
    std::vector<bool> kept(script_.size(), true);
    // Each is looked at once: to leave one out makes no room for another.
    for (uint32_t i : again_) {
      if (!kept[i]) continue;
      std::vector<bool> fewer = kept;
      fewer[i] = false;
      LeaveOutUnread(fewer);
      if (meter_.Measure(Written(fewer)).most_live <= limit) {
        kept = std::move(fewer);
      }
    }
    return Written(kept);
  }

 private:
  // Runs again of which nothing is read before the next run.
  void LeaveOutUnread(std::vector<bool>& kept) const {
    std::vector<bool> is_read(program_.graph.values().size());
    for (size_t i = script_.size(); i-- > 0;) {
      if (!kept[i]) continue;
      const OpRun& run =
          is_first_[i] ? meter_.First(script_[i]) : meter_.Again(script_[i]);
      const bool any = std::any_of(run.outputs.begin(), run.outputs.end(),
                                   [&](ValueId v) { return is_read[v.i]; });
      if (!is_first_[i] && !any) {
        kept[i] = false;
        continue;
      }
      for (ValueId v : run.outputs) is_read[v.i] = false;
      for (ValueId v : run.inputs) is_read[v.i] = true;
    }
  }

  Script Written(const std::vector<bool>& kept) const {
    Script script;
    for (size_t i = 0; i < kept.size(); ++i) {
      if (kept[i]) script.push_back(script_[i]);
    }
    return script;
  }

  const Program& program_;
  ScriptMeter& meter_;
  const Script& script_;
  std::vector<bool> is_first_;   // per place of the script
  std::vector<uint32_t> again_;  // the other places, the most work first
};

}  // namespace

Script DelayRuns(const Program& program, const ScriptMeter& meter,
                 const Script& script) {
  return RunDelayer(program, meter).Delay(script);
}

Script LeaveOutRuns(const Program& program, ScriptMeter& meter,
                    const Script& script, size_t limit) {
  return RunPruner(program, meter, script).Prune(limit);
}

}  // namespace thimble::planner
