// SPDX-License-Identifier: Apache-2.0
#include "planner/recompute/stage_costs.h"

#include <algorithm>
#include <span>

#include "base/workspace.h"
#include "graph/op.h"
#include "planner/recompute/dry_run.h"

namespace thimble::planner {
namespace {

// All subsets of so many values are tried; of more, sets in so many steps.
constexpr size_t kMaxSubsetValues = 5;
constexpr size_t kSteps = 6;

// Flops of a forward op that runs again.
int64_t RepeatFlops(const Graph& graph, const Op& op) {
  return op.def->Repeat().def->Flops(graph.InputSpecs(op),
                                     graph.OutputSpecs(op));
}

// Ops in the order in which a stage runs them, given what is there.
class Fragment {
 public:
  explicit Fragment(const Program& program) : program_(program) {
    there_.resize(program.graph.values().size());
  }

  void Start(std::span<const ValueId> input, std::span<const ValueId> saved) {
    for (ValueId v : touched_) there_[v.i] = false;
    touched_.clear();
    ops_.clear();
    forward_flops_ = 0;
    for (ValueId v : input) Have(v);
    for (ValueId v : saved) Have(v);
  }

  void Run(OpId id) {
    const Op& op = program_.graph.op(id);
    for (ValueId v : op.inputs) Ensure(v);
    ops_.push_back(id);
    for (ValueId v : op.outputs) Have(v);
    if (program_.origins[id.i].part == OpOrigin::Part::kForward) {
      forward_flops_ += RepeatFlops(program_.graph, op);
    }
  }

  void Ensure(ValueId v) {
    if (there_[v.i] || !IsRecomputable(program_, v)) return;
    Run(program_.graph.value(v).producer);
  }

  const std::vector<OpId>& ops() const { return ops_; }
  int64_t forward_flops() const { return forward_flops_; }

 private:
  void Have(ValueId v) {
    if (there_[v.i]) return;
    there_[v.i] = true;
    touched_.push_back(v);
  }

  const Program& program_;
  std::vector<bool> there_;  // per value
  std::vector<ValueId> touched_;
  std::vector<OpId> ops_;
  int64_t forward_flops_ = 0;
};

class ChainMeter {
 public:
  ChainMeter(const Program& program, const Chain& chain,
             const PlanOptions& options)
      : program_(program),
        chain_(chain),
        fragment_(program),
        run_(program, options) {
    FindGradients();
  }

  MeasuredChain Run() {
    MeasuredChain measured;
    for (size_t s = 0; s < chain_.stages.size(); ++s) {
      measured.saved.emplace_back();
      measured.stages.push_back(Measure(s, measured.saved.back()));
    }
    return measured;
  }

 private:
  std::span<const ValueId> InputOf(size_t stage) const {
    if (stage == 0) return {};
    return chain_.stages[stage - 1].carried;
  }

  int64_t BytesOf(std::span<const ValueId> values) const {
    int64_t bytes = 0;
    for (ValueId v : values) {
      bytes += static_cast<int64_t>(
          RoundUpToAlignment(program_.graph.value(v).spec.bytes()));
    }
    return bytes;
  }

  // Which stage's backward reads a gradient last, which parameters' gradients
  // are there when a stage's backward begins, and what else waits then.
  void FindGradients() {
    const size_t n = chain_.stages.size();
    last_stage_.assign(program_.graph.values().size(), n);
    for (size_t s = n; s-- > 0;) {
      for (OpId op : chain_.stages[s].backward) {
        for (ValueId v : program_.graph.op(op).inputs) last_stage_[v.i] = s;
      }
    }
    // A gradient that other stages add to is none yet.
    is_learned_.assign(program_.graph.values().size(), false);
    for (const ParameterState& p : program_.parameters) {
      if (p.gradient.valid()) is_learned_[p.gradient.i] = true;
    }
    learned_.assign(n + 1, 0);
    waiting_.assign(n, 0);
    for (size_t s = n; s-- > 0;) {
      learned_[s] = learned_[s + 1];
      for (OpId op : chain_.stages[s].backward) {
        for (ValueId v : program_.graph.op(op).outputs) {
          const ValueId one[] = {v};
          const int64_t bytes = BytesOf(one);
          if (is_learned_[v.i]) {
            // Those of several microbatches are there all the time.
            if (program_.microbatches == 1) learned_[s] += bytes;
            continue;
          }
          // Waits in front of each stage down to the one that reads it last.
          for (size_t k = last_stage_[v.i]; k < s; ++k) waiting_[k] += bytes;
        }
      }
    }
  }

  // What outlives the backward pass of a stage.
  std::vector<ValueId> GradientsAfter(size_t stage) const {
    std::vector<ValueId> after;
    for (OpId op : chain_.stages[stage].backward) {
      for (ValueId v : program_.graph.op(op).outputs) {
        if (is_learned_[v.i] || last_stage_[v.i] < stage) after.push_back(v);
      }
    }
    return after;
  }

  // What backward reads of the inside of a stage.
  std::vector<ValueId> Inside(size_t stage) const {
    const Stage& s = chain_.stages[stage];
    std::vector<ValueId> inside;
    for (OpId id : s.forward) {
      for (ValueId v : program_.graph.op(id).outputs) {
        const bool carried =
            std::find(s.carried.begin(), s.carried.end(), v) != s.carried.end();
        if (carried || !IsRecomputable(program_, v)) continue;
        if (last_stage_[v.i] < chain_.stages.size()) inside.push_back(v);
      }
    }
    return inside;
  }

  // All of them where they are few; else more and more, small ones first.
  std::vector<std::vector<ValueId>> SaveSets(size_t stage) const {
    std::vector<ValueId> inside = Inside(stage);
    std::vector<std::vector<ValueId>> sets;
    if (inside.size() <= kMaxSubsetValues) {
      for (uint32_t bits = 0; bits < 1u << inside.size(); ++bits) {
        sets.emplace_back();
        for (size_t k = 0; k < inside.size(); ++k) {
          if (((bits >> k) & 1) != 0) sets.back().push_back(inside[k]);
        }
      }
      return sets;
    }
    std::stable_sort(inside.begin(), inside.end(), [&](ValueId a, ValueId b) {
      return program_.graph.value(a).spec.bytes() <
             program_.graph.value(b).spec.bytes();
    });
    for (size_t k = 0; k <= kSteps; ++k) {
      const size_t size = inside.size() * k / kSteps;
      sets.emplace_back(inside.begin(),
                        inside.begin() + static_cast<std::ptrdiff_t>(size));
    }
    return sets;
  }

  StageCosts Measure(size_t stage, std::vector<std::vector<ValueId>>& saved) {
    const Stage& s = chain_.stages[stage];
    const std::span<const ValueId> input = InputOf(stage);
    StageCosts costs;
    costs.input = BytesOf(input);
    costs.gradient = waiting_[stage] + learned_[stage + 1];
    fragment_.Start(input, {});
    for (ValueId v : s.carried) fragment_.Ensure(v);
    costs.forward_cost = fragment_.forward_flops();
    costs.pinned_peak = run_.Peak(fragment_.ops(), input, s.carried);
    costs.passing_peak = run_.Peak(fragment_.ops(), {}, s.carried);
    for (const std::vector<ValueId>& set : SaveSets(stage)) {
      const SaveOption option = MeasureOption(stage, set);
      const auto beats = [&](const SaveOption& other) {
        return other.saved <= option.saved &&
               other.forward_peak <= option.forward_peak &&
               other.backward_peak <= option.backward_peak &&
               other.backward_cost <= option.backward_cost;
      };
      if (std::any_of(costs.options.begin(), costs.options.end(), beats)) {
        continue;
      }
      costs.options.push_back(option);
      saved.push_back(set);
    }
    return costs;
  }

  SaveOption MeasureOption(size_t stage, const std::vector<ValueId>& set) {
    const Stage& s = chain_.stages[stage];
    const std::span<const ValueId> input = InputOf(stage);
    SaveOption option;
    option.saved = BytesOf(set);
    std::vector<ValueId> stays = s.carried;
    stays.insert(stays.end(), set.begin(), set.end());
    fragment_.Start(input, {});
    for (ValueId v : stays) fragment_.Ensure(v);
    option.forward_peak = run_.Peak(fragment_.ops(), input, stays);
    fragment_.Start(input, set);
    for (OpId op : s.backward) fragment_.Run(op);
    option.backward_cost = fragment_.forward_flops();
    // The input dies on the way: nothing reads it later.
    option.backward_peak =
        run_.Peak(fragment_.ops(), {}, GradientsAfter(stage)) - BytesOf(input) +
        learned_[stage + 1];
    return option;
  }

  const Program& program_;
  const Chain& chain_;
  Fragment fragment_;
  DryRun run_;
  std::vector<size_t> last_stage_;  // per value; none: the number of stages
  std::vector<bool> is_learned_;    // per value: a parameter's gradient
  std::vector<int64_t> learned_;    // bytes of them, of the stages from s on
  std::vector<int64_t> waiting_;    // gradients of activations, per stage
};

}  // namespace

MeasuredChain MeasureChain(const Program& program, const Chain& chain,
                           const PlanOptions& options) {
  return ChainMeter(program, chain, options).Run();
}

}  // namespace thimble::planner
