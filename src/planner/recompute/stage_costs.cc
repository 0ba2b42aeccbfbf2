// SPDX-License-Identifier: Apache-2.0
#include "planner/recompute/stage_costs.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "base/workspace.h"
#include "graph/op.h"
#include "planner/lives.h"

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

// Most bytes of activations, gradients and scratch while a fragment runs.
class DryRun {
 public:
  DryRun(const Program& program, const PlanOptions& options)
      : program_(program), options_(options) {
    local_.assign(program.graph.values().size(), kUnknown);
    lasting_.assign(program.graph.values().size(), false);
    if (program.microbatches == 1) return;
    for (const ParameterState& p : program.parameters) {
      if (p.gradient.valid()) lasting_[p.gradient.i] = true;
    }
  }

  // `outside` is there and stays, and is not counted; `stays` is needed after
  // the last op.
  int64_t Peak(const std::vector<OpId>& ops, std::span<const ValueId> outside,
               std::span<const ValueId> stays) {
    Reset();
    end_ = static_cast<uint32_t>(ops.size());
    for (ValueId v : outside) Mark(v, kNotCounted);
    for (uint32_t t = 0; t < end_; ++t) {
      const Op& op = OpOf(ops, t);
      for (ValueId v : op.inputs) Extend(v, 0, t + 1);
      for (ValueId v : op.outputs) Extend(v, t, t + 1);
    }
    for (ValueId v : stays) Extend(v, 0, end_ + 1);
    ShareBytes(ops);
    return SumUp(ops);
  }

 private:
  static constexpr int32_t kUnknown = -1;
  static constexpr int32_t kNotCounted = -2;

  struct Life {
    Interval live;
    size_t bytes;
    bool shared = false;  // counted under another
  };

  const Op& OpOf(const std::vector<OpId>& ops, uint32_t t) const {
    return program_.graph.op(ops[t]);
  }

  void Reset() {
    for (uint32_t v : marked_) local_[v] = kUnknown;
    marked_.clear();
    lives_.clear();
  }
  void Mark(ValueId v, int32_t as) {
    local_[v.i] = as;
    marked_.push_back(v.i);
  }

  // State, images and statistics are there in any schedule, and so are the
  // gradients that several microbatches add to.
  bool IsCounted(ValueId v) const {
    const Value& value = program_.graph.value(v);
    return value.producer.valid() && value.role != Role::kStatistic &&
           !lasting_[v.i];
  }

  void Extend(ValueId v, uint32_t from, uint32_t to) {
    const Value& value = program_.graph.value(v);
    if (local_[v.i] == kNotCounted || !IsCounted(v)) return;
    if (local_[v.i] == kUnknown) {
      Mark(v, static_cast<int32_t>(lives_.size()));
      lives_.push_back({{from, to}, RoundUpToAlignment(value.spec.bytes())});
      return;
    }
    Life& life = LifeOf(v);
    life.live.end = std::max(life.live.end, to);
  }

  bool IsKnown(ValueId v) const { return local_[v.i] >= 0; }
  Life& LifeOf(ValueId v) { return lives_[static_cast<size_t>(local_[v.i])]; }

  // `out` is from now on part of `in`.
  void Join(ValueId in, ValueId out) {
    Life& whole = LifeOf(in);
    Life& part = LifeOf(out);
    if (&whole == &part) return;
    whole.live.end = std::max(whole.live.end, part.live.end);
    part.shared = true;
    local_[out.i] = local_[in.i];
  }

  void ShareBytes(const std::vector<OpId>& ops) {
    for (uint32_t t = 0; t < end_; ++t) {
      const Op& op = OpOf(ops, t);
      if (op.def->IsView()) {
        if (IsKnown(op.inputs[0]) && IsKnown(op.outputs[0])) {
          Join(op.inputs[0], op.outputs[0]);
        }
        continue;
      }
      if (!options_.inplace) continue;
      const std::vector<InPlacePair> pairs = op.def->InPlace();
      ChooseOverwritten(
          pairs,
          [&](const InPlacePair& pair) { return IsFree(op, pairs, pair, t); },
          [&](const InPlacePair& pair) {
            Join(op.inputs[pair.input], op.outputs[pair.output]);
          });
    }
  }

  bool IsFree(const Op& op, std::span<const InPlacePair> pairs,
              const InPlacePair& pair, uint32_t time) {
    const ValueId in = op.inputs[pair.input];
    const ValueId out = op.outputs[pair.output];
    return MayOverwrite(op.inputs, pairs, pair) && IsKnown(in) &&
           IsKnown(out) && LifeOf(in).bytes == LifeOf(out).bytes &&
           LifeOf(in).live.end == time + 1;
  }

  int64_t SumUp(const std::vector<OpId>& ops) const {
    LiveBytesOverTime over_time(end_ + 1);
    for (const Life& life : lives_) {
      if (!life.shared) over_time.Add(life.live, life.bytes);
    }
    const std::vector<size_t> live = over_time.Sum();
    size_t peak = 0;
    for (uint32_t t = 0; t < end_; ++t) {
      const Op& op = OpOf(ops, t);
      const size_t scratch =
          TotalBytes(op.def->Scratch(program_.graph.InputSpecs(op),
                                     program_.graph.OutputSpecs(op)),
                     options_.threads);
      peak = std::max(peak, live[t] + scratch);
    }
    return static_cast<int64_t>(peak);
  }

  const Program& program_;
  const PlanOptions& options_;
  uint32_t end_ = 0;
  std::vector<int32_t> local_;  // per value: index into lives_, or a mark
  std::vector<bool> lasting_;   // per value
  std::vector<uint32_t> marked_;
  std::vector<Life> lives_;
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
