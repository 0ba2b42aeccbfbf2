// SPDX-License-Identifier: Apache-2.0
#include "planner/recompute/dry_run.h"

#include <algorithm>

#include "base/workspace.h"
#include "planner/lives.h"

namespace thimble::planner {

DryRun::DryRun(const Program& program, const PlanOptions& options)
    : program_(program), options_(options) {
  local_.assign(program.graph.values().size(), kUnknown);
  lasting_.assign(program.graph.values().size(), false);
  if (program.microbatches == 1) return;
  for (const ParameterState& p : program.parameters) {
    if (p.gradient.valid()) lasting_[p.gradient.i] = true;
  }
}

int64_t DryRun::Peak(const std::vector<OpId>& ops,
                     std::span<const ValueId> outside,
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

void DryRun::Reset() {
  for (uint32_t v : marked_) local_[v] = kUnknown;
  marked_.clear();
  lives_.clear();
}

void DryRun::Mark(ValueId v, int32_t as) {
  local_[v.i] = as;
  marked_.push_back(v.i);
}

// State, feeds and statistics are there in any schedule, and so are the
// gradients that several microbatches add to.
bool DryRun::IsCounted(ValueId v) const {
  const Value& value = program_.graph.value(v);
  return value.producer.valid() && value.role != Role::kStatistic &&
         !lasting_[v.i];
}

void DryRun::Extend(ValueId v, uint32_t from, uint32_t to) {
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

// `out` is from now on part of `in`.
void DryRun::Join(ValueId in, ValueId out) {
  Life& whole = LifeOf(in);
  Life& part = LifeOf(out);
  if (&whole == &part) return;
  whole.live.end = std::max(whole.live.end, part.live.end);
  part.shared = true;
  local_[out.i] = local_[in.i];
}

void DryRun::ShareBytes(const std::vector<OpId>& ops) {
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

bool DryRun::IsFree(const Op& op, std::span<const InPlacePair> pairs,
                    const InPlacePair& pair, uint32_t time) {
  const ValueId in = op.inputs[pair.input];
  const ValueId out = op.outputs[pair.output];
  return MayOverwrite(op.inputs, pairs, pair) && IsKnown(in) && IsKnown(out) &&
         LifeOf(in).bytes == LifeOf(out).bytes &&
         LifeOf(in).live.end == time + 1;
}

int64_t DryRun::SumUp(const std::vector<OpId>& ops) const {
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

}  // namespace thimble::planner
