// SPDX-License-Identifier: Apache-2.0
//
// The naive checker of plans. It runs the schedule on paper: a list of values
// whose bytes are intact, from which every write strikes out what it overlaps.
// No cleverness, and no code shared with the planner: only the plan's offsets,
// the graph and the ops' own declarations are read.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/workspace.h"
#include "graph/op.h"
#include "thimble/plan.h"

namespace thimble {
namespace {

struct Range {
  size_t begin = 0;
  size_t end = 0;
};

bool Overlap(const Range& a, const Range& b) {
  return a.begin < b.end && b.begin < a.end;
}

class Simulation {
 public:
  explicit Simulation(const Plan& plan)
      : plan_(plan),
        intact_(plan.graph().values().size(), false),
        for_update_(plan.graph().values().size(), false),
        updated_(plan.graph().values().size(), false) {
    ranges_.reserve(plan.graph().values().size());
    for (uint32_t i = 0; i < plan.graph().values().size(); ++i) {
      const size_t offset = plan.OffsetOf({i});
      // A member may lie anywhere in its pool.
      const ValueId pool = plan.PoolOf({i});
      const ValueSpec& spec =
          plan.graph().value(pool.valid() ? pool : ValueId{i}).spec;
      ranges_.push_back({offset, offset + spec.bytes()});
    }
  }

  Status Run() {
    Status status = CheckAxes();
    if (status.ok()) status = CheckPlaces();
    if (!status.ok()) return status;
    for (const ParameterState& p : plan_.parameters()) {
      Write(p.parameter);
      for (ValueId v : p.state) Write(v);
    }
    for (ValueId v : plan_.statistics()) Write(v);
    if (plan_.sparse().has_value()) {
      Write(plan_.sparse()->index);
      Write(plan_.sparse()->parameters);
      for (ValueId v : plan_.sparse()->state) Write(v);
    }
    FindForUpdate();
    // Twice: what the second round reads of the first one's state must still be
    // there.
    for (int round = 0; round < 2; ++round) {
      updated_.assign(updated_.size(), false);
      for (Phase phase :
           {Phase::kMicrobatch, Phase::kUpdate, Phase::kEvaluate}) {
        if (!plan_.options().training && phase != Phase::kEvaluate) continue;
        status = RunPhase(phase);
        if (!status.ok()) return status;
        // A second microbatch adds to what the first one made.
        if (phase != Phase::kMicrobatch || plan_.microbatches() == 1) continue;
        adding_ = true;
        status = RunPhase(phase);
        adding_ = false;
        if (!status.ok()) return status;
      }
    }
    return Status::Ok();
  }

 private:
  // What the microbatch phase makes for the update phase.
  void FindForUpdate() {
    for (const ScheduledOp& s : plan_.schedule()) {
      if (s.phase != Phase::kUpdate) continue;
      for (ValueId v : plan_.graph().op(s.op).inputs) {
        for_update_[v.i] = plan_.graph().value(v).producer.valid();
      }
    }
  }

  Range RangeOf(ValueId v) const { return ranges_[v.i]; }

  // A pool and its members, or two of these, which are apart in it. The same
  // member is one whatever value it is.
  bool AreApartInPool(ValueId a, ValueId b) const {
    const ValueId pool_a = plan_.PoolOf(a), pool_b = plan_.PoolOf(b);
    if (pool_a == b || pool_b == a) return true;
    if (!pool_a.valid() || pool_a != pool_b) return false;
    const auto member = [this](ValueId v) {
      return plan_.graph().value(v).spec.storage.sparsity->member;
    };
    return member(a) != member(b);
  }
  bool Clash(ValueId a, ValueId b) const {
    return Overlap(RangeOf(a), RangeOf(b)) && !AreApartInPool(a, b);
  }

  // A value that counts along an axis has room for all that a run may use.
  Status CheckAxes() const {
    const auto axes = plan_.graph().axes();
    for (const Value& v : plan_.graph().values()) {
      if (!v.spec.axis.valid()) continue;
      const size_t index = v.spec.axis.index();
      if (index >= axes.size() || v.spec.shape[0] != axes[index].capacity) {
        return Status::Failed(
            fmt::format("value '{}' {} does not have the extent of its axis",
                        v.name, v.spec.shape.ToString()));
      }
    }
    return Status::Ok();
  }

  // Every value lies inside the arena and is aligned; no two buffers that claim
  // to live at the same time overlap; roles add up.
  Status CheckPlaces() const {
    for (uint32_t i = 0; i < intact_.size(); ++i) {
      const Range r = RangeOf({i});
      if (r.end > plan_.arena_bytes() || r.begin % kAlignment != 0) {
        return Status::Failed(fmt::format(
            "value '{}' at [{}, {}) is outside of the arena of {} bytes or not "
            "aligned",
            plan_.graph().values()[i].name, r.begin, r.end,
            plan_.arena_bytes()));
      }
    }
    const auto buffers = plan_.buffers();
    for (const Buffer& b : buffers) {
      if (b.offset + b.bytes > plan_.arena_bytes() ||
          b.offset % kAlignment != 0) {
        return Status::Failed(fmt::format(
            "buffer '{}' at [{}, {}) is outside of the arena of {} bytes or "
            "not aligned",
            b.name, b.offset, b.offset + b.bytes, plan_.arena_bytes()));
      }
    }
    for (size_t a = 0; a < buffers.size(); ++a) {
      for (size_t b = a + 1; b < buffers.size(); ++b) {
        if (buffers[a].live.begin < buffers[b].live.end &&
            buffers[b].live.begin < buffers[a].live.end &&
            Overlap(
                {buffers[a].offset, buffers[a].offset + buffers[a].bytes},
                {buffers[b].offset, buffers[b].offset + buffers[b].bytes})) {
          return Status::Failed(
              fmt::format("buffers '{}' and '{}' live together and overlap",
                          buffers[a].name, buffers[b].name));
        }
      }
    }
    size_t sum = 0;
    for (size_t role = 0; role < kRoles; ++role) {
      sum += plan_.peak_bytes(static_cast<Role>(role));
    }
    if (sum != plan_.lower_bound() ||
        plan_.lower_bound() > plan_.arena_bytes()) {
      return Status::Failed(
          fmt::format("roles add up to {}, lower bound {}, arena {}", sum,
                      plan_.lower_bound(), plan_.arena_bytes()));
    }
    return Status::Ok();
  }

  void Strike(const Range& range) {
    for (uint32_t i = 0; i < intact_.size(); ++i) {
      if (intact_[i] && Overlap(ranges_[i], range)) intact_[i] = false;
    }
  }

  void Write(ValueId v) {
    for (uint32_t i = 0; i < intact_.size(); ++i) {
      if (intact_[i] && Clash({i}, v)) intact_[i] = false;
    }
    intact_[v.i] = true;
  }

  Status RunPhase(Phase phase) {
    if (phase != Phase::kUpdate) {
      const Ends& ends = phase == Phase::kMicrobatch ? plan_.train_ends()
                                                     : plan_.evaluate_ends();
      for (const End& end : ends.feeds) Write(end.value);
    }
    for (const ScheduledOp& s : plan_.schedule()) {
      if (s.phase != phase) continue;
      Status status = RunOp(s);
      if (!status.ok()) return status;
    }
    const bool evaluates = phase == Phase::kEvaluate;
    const Ends& ends = evaluates ? plan_.evaluate_ends() : plan_.train_ends();
    std::vector<ValueId> read;
    if (ends.loss.valid()) read.push_back(ends.loss);
    for (const End& end : ends.metrics) read.push_back(end.value);
    if (evaluates) {
      for (const End& end : ends.outputs) read.push_back(end.value);
    }
    for (ValueId v : read) {
      if (!intact_[v.i]) {
        return Status::Failed(
            fmt::format("'{}' is lost before the host reads it",
                        plan_.graph().value(v).name));
      }
    }
    return Status::Ok();
  }

  Status RunOp(const ScheduledOp& s) {
    const Op& op = plan_.graph().op(s.op);
    for (ValueId v : op.inputs) {
      if (!intact_[v.i]) {
        return Status::Failed(fmt::format(
            "op '{}' reads '{}', which is not there (overwritten or not yet "
            "made)",
            op.name, plan_.graph().value(v).name));
      }
    }
    Status status = CheckChanges(s, op);
    if (!status.ok()) return status;
    if (op.def->IsView()) {
      if (plan_.OffsetOf(op.inputs[0]) != plan_.OffsetOf(op.outputs[0])) {
        return Status::Failed(
            fmt::format("view '{}' lies elsewhere than its input", op.name));
      }
      intact_[op.outputs[0].i] = true;  // and so is the input still
      return Status::Ok();
    }
    status = CheckOverlaps(s, op);
    if (!status.ok()) return status;
    status = CheckSums(s, op);
    if (!status.ok()) return status;
    if (s.scratch.has_value()) {
      const Buffer& b = plan_.buffers()[*s.scratch];
      Strike({b.offset, b.offset + b.bytes});
    }
    for (ValueId v : op.outputs) Write(v);
    return Status::Ok();
  }

  // Only state is changed where it lies. A parameter is changed once in a step,
  // and not read afterwards before the step ends.
  Status CheckChanges(const ScheduledOp& s, const Op& op) {
    const auto wrong = [&](const char* what, const Value& value) {
      return Status::Failed(
          fmt::format("op '{}' {} '{}'", op.name, what, value.name));
    };
    for (uint32_t i = 0; i < op.inputs.size(); ++i) {
      const ValueId v = op.inputs[i];
      const Value& value = plan_.graph().value(v);
      if (s.phase != Phase::kEvaluate && updated_[v.i]) {
        return wrong("reads after its update", value);
      }
      if (((op.def->Mutates() >> i) & 1) == 0) continue;
      if (value.producer.valid() || value.role == Role::kInput) {
        return wrong("changes what is not state:", value);
      }
      if (value.role != Role::kParameter) continue;
      if (s.phase == Phase::kMicrobatch && plan_.microbatches() > 1) {
        return wrong("changes between microbatches", value);
      }
      updated_[v.i] = true;
    }
    return Status::Ok();
  }

  // With several microbatches, an op that makes something for the update can
  // add to it; what it adds to is there, and nobody takes it for this
  // microbatch's own.
  Status CheckSums(const ScheduledOp& s, const Op& op) const {
    if (plan_.microbatches() == 1 || !plan_.options().training) {
      return Status::Ok();
    }
    const auto wrong = [&](const char* what, ValueId v) {
      return Status::Failed(fmt::format("op '{}' {} '{}'", op.name, what,
                                        plan_.graph().value(v).name));
    };
    for (uint32_t o = 0; o < op.outputs.size(); ++o) {
      const ValueId v = op.outputs[o];
      if (!for_update_[v.i]) continue;
      if (!plan_.IsCarried(v)) return wrong("is not told to carry", v);
      if (((op.def->Accumulates() >> o) & 1) == 0) {
        return wrong("cannot add to", v);
      }
      if (adding_ && !intact_[v.i]) {
        return wrong("adds to what is lost:", v);
      }
    }
    for (ValueId v : op.inputs) {
      if (for_update_[v.i] && s.phase != Phase::kUpdate) {
        return wrong("reads a sum of several microbatches,", v);
      }
    }
    return Status::Ok();
  }

  // Scratch apart from everything; outputs apart from each other, and from the
  // inputs unless the op allows that very pair.
  Status CheckOverlaps(const ScheduledOp& s, const Op& op) const {
    const auto clash = [&](const char* what) {
      return Status::Failed(fmt::format("op '{}': {}", op.name, what));
    };
    const size_t needed =
        TotalBytes(op.def->Scratch(plan_.graph().InputSpecs(op),
                                   plan_.graph().OutputSpecs(op)),
                   plan_.options().threads);
    const size_t given =
        s.scratch.has_value() ? plan_.buffers()[*s.scratch].bytes : 0;
    if (given < needed) return clash("scratch is missing or too small");
    if (s.scratch.has_value()) {
      const Buffer& b = plan_.buffers()[*s.scratch];
      const Range scratch{b.offset, b.offset + b.bytes};
      for (const auto* list : {&op.inputs, &op.outputs}) {
        for (ValueId v : *list) {
          if (Overlap(scratch, RangeOf(v))) return clash("scratch overlaps");
        }
      }
    }
    const std::vector<InPlacePair> allowed = op.def->InPlace();
    for (uint32_t o = 0; o < op.outputs.size(); ++o) {
      const Range out = RangeOf(op.outputs[o]);
      for (uint32_t other = o + 1; other < op.outputs.size(); ++other) {
        if (Clash(op.outputs[o], op.outputs[other])) {
          return clash("two outputs overlap");
        }
      }
      for (uint32_t i = 0; i < op.inputs.size(); ++i) {
        const Range in = RangeOf(op.inputs[i]);
        if (!Clash(op.outputs[o], op.inputs[i])) continue;
        const bool same = out.begin == in.begin && out.end == in.end;
        const bool may = std::any_of(
            allowed.begin(), allowed.end(), [&](const InPlacePair& pair) {
              return pair.input == i && pair.output == o;
            });
        const bool adds =
            for_update_[op.outputs[o].i] && plan_.microbatches() > 1;
        if (!same || !may || adds) return clash("output overlaps an input");
      }
    }
    return Status::Ok();
  }

  const Plan& plan_;
  std::vector<Range> ranges_;     // per value
  std::vector<bool> intact_;      // per value
  std::vector<bool> for_update_;  // per value
  std::vector<bool> updated_;     // per value: a parameter, in this step
  bool adding_ = false;           // the second microbatch of a step runs
};

}  // namespace

Status ValidatePlan(const Plan& plan) { return Simulation(plan).Run(); }

}  // namespace thimble
