// SPDX-License-Identifier: Apache-2.0
#include "planner/fold_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "graph/op.h"
#include "ops/accumulate.h"
#include "ops/lstm_gates.h"
#include "planner/program_copy.h"

namespace thimble::planner {
namespace {

bool IsWeight(const Value& value) {
  return value.role == Role::kParameter && value.spec.shape.rank() >= 2;
}

// One output of an op: a part of a weight's gradient.
struct Folded {
  uint32_t output;
  uint32_t parameter;  // an index into Program::parameters
  uint32_t part, parts;
};

class Folder {
 public:
  Folder(const Program& source, const Optimizer& optimizer)
      : source_(source), optimizer_(optimizer), copy_(source) {
    folded_.resize(source.graph.ops().size());
    dropped_.resize(source.graph.ops().size());
    applies_.resize(source.graph.ops().size());
  }

  Program Run() {
    for (uint32_t i = 0; i < source_.parameters.size(); ++i) FindParts(i);
    std::array<std::vector<OpId>, kPhases> phases;
    std::vector<OpOrigin> origins;
    for (size_t phase = 0; phase < kPhases; ++phase) {
      for (OpId id : OrderOf(static_cast<Phase>(phase))) {
        if (dropped_[id.i]) continue;
        phases[phase].push_back(Add(id));
        origins.push_back(source_.origins[id.i]);
      }
    }
    Program made = copy_.Take();
    made.origins = std::move(origins);
    made.phases = std::move(phases);
    return made;
  }

 private:
  const Graph& graph() const { return source_.graph; }

  // Walks back from the gradient over sums that are made of it.
  void FindParts(uint32_t parameter) {
    const ParameterState& state = source_.parameters[parameter];
    if (!state.gradient.valid() || !IsWeight(graph().value(state.parameter))) {
      return;
    }
    std::vector<std::pair<OpId, uint32_t>> makers;  // the last one first
    ValueId sum = state.gradient;
    while (sum.valid()) {
      const OpId id = graph().value(sum).producer;
      const Op& op = graph().op(id);
      const auto at = std::ranges::find(op.outputs, sum);
      const auto output = static_cast<uint32_t>(at - op.outputs.begin());
      if (Is<ops::Accumulate>(op)) {
        dropped_[id.i] = true;
        sum = op.inputs[0];
        continue;
      }
      makers.emplace_back(id, output);
      sum = SumSoFar(op, output);
    }
    for (OpId id : source_.phases[static_cast<size_t>(Phase::kUpdate)]) {
      const Op& op = graph().op(id);
      if (std::ranges::count(op.inputs, state.gradient) == 0) continue;
      applies_[id.i] = optimizer_.ApplyOp(parameter);
      dropped_[id.i] = applies_[id.i] == nullptr;
    }
    const auto parts = static_cast<uint32_t>(makers.size());
    for (uint32_t k = 0; k < parts; ++k) {
      const auto& [id, output] = makers[parts - 1 - k];
      folded_[id.i].push_back({output, parameter, k, parts});
    }
  }

  // What a part of a gradient is added to; invalid where it is the first.
  static ValueId SumSoFar(const Op& op, uint32_t output) {
    for (const InPlacePair& pair : op.def->InPlace()) {
      if (pair.output == output) return op.inputs[pair.input];
    }
    return {};
  }

  // The parameters that folds of an op change.
  std::vector<ValueId> UpdatedBy(OpId id) const {
    std::vector<ValueId> updated;
    for (const Folded& f : folded_[id.i]) {
      if (optimizer_.ApplyOp(f.parameter) != nullptr) continue;
      updated.push_back(source_.parameters[f.parameter].parameter);
    }
    return updated;
  }

  std::vector<OpId> OrderOf(Phase phase) const {
    std::vector<OpId> order = source_.phases[static_cast<size_t>(phase)];
    if (phase != Phase::kMicrobatch) return order;
    const std::vector<OpId> before = order;
    for (OpId id : before) {
      const std::vector<ValueId> updated = UpdatedBy(id);
      if (updated.empty()) continue;
      const auto from = std::ranges::find(order, id);
      auto last = from;
      for (auto later = from; later != order.end(); ++later) {
        for (ValueId v : graph().op(*later).inputs) {
          if (std::ranges::count(updated, v) > 0) last = later;
        }
      }
      std::rotate(from, from + 1, last + 1);
    }
    return order;
  }

  OpId Add(OpId id) {
    const Op& op = graph().op(id);
    if (applies_[id.i] != nullptr) {
      // Parameter and state, without the gradient between them.
      std::vector<ValueId> inputs = op.inputs;
      inputs.erase(inputs.begin() + 1);
      return copy_.graph().AddOp(op.name, applies_[id.i], inputs, {});
    }
    std::shared_ptr<const OpDef> def = op.def;
    std::vector<ValueId> inputs = op.inputs, outputs = op.outputs;
    // The last output first, so that the numbers of the others stay.
    std::vector<Folded> folds = folded_[id.i];
    std::ranges::sort(folds, std::greater(), &Folded::output);
    for (const Folded& f : folds) {
      const ParameterState& state = source_.parameters[f.parameter];
      const ValueId sum = SumSoFar(op, f.output);
      if (sum.valid()) inputs.erase(std::ranges::find(inputs, sum));
      inputs.insert(inputs.begin(), state.state.begin(), state.state.end());
      inputs.insert(inputs.begin(), state.parameter);
      outputs.erase(outputs.begin() + f.output);
      def = optimizer_.FoldOp(
          {std::move(def), f.output, f.parameter, f.part, f.parts});
    }
    return copy_.graph().AddOp(op.name, std::move(def), inputs, outputs);
  }

  const Program& source_;
  const Optimizer& optimizer_;
  ProgramCopy copy_;
  std::vector<std::vector<Folded>> folded_;  // per op
  std::vector<bool> dropped_;                // per op
  // Per op of the update phase: what takes its place, if anything.
  std::vector<std::shared_ptr<const OpDef>> applies_;
};

}  // namespace

bool InPieces(const Precision& precision) {
  return !precision.keeps_gradients || precision.gradients.blocks.has_value();
}

Status CheckGradients(const Model& model, const PlanOptions& options) {
  if (!options.training || !InPieces(options.precision)) return Status::Ok();
  const int64_t part =
      options.microbatch > 0 ? options.microbatch : model.batch();
  const bool one_pass = part == model.batch() && !options.allow_microbatch;
  const bool one_group =
      options.ghost_batch == 0 || options.ghost_batch == part;
  for (uint32_t i = 0; i < model.graph.values().size(); ++i) {
    const Value& value = model.graph.values()[i];
    if (!IsWeight(value)) continue;
    int readers = 0;
    bool all_add = true;  // each to the gradient of the one before
    for (const Op& op : model.graph.ops()) {
      if (std::ranges::count(op.inputs, ValueId{i}) == 0) continue;
      ++readers;
      all_add = all_add && Is<ops::LstmGates>(op);
    }
    if (readers > 1 && !all_add) {
      return Status::Usage(fmt::format(
          "several ops read '{}', and their gradients are summed up as floats; "
          "use f32, f16 or bf16 for Precision::gradients",
          value.name));
    }
    if (options.precision.keeps_gradients) continue;
    TH_RETURN_IF_ERROR(
        options.optimizer->CheckFold(one_pass && one_group && readers == 1));
    if (options.two_pass && options.optimizer->ApplyOp(0) == nullptr) {
      return Status::Usage(
          "without gradients of weights (Precision::keeps_gradients = false) "
          "this optimizer updates a weight as soon as its gradient is made, "
          "and two passes (PlanOptions::two_pass) read it once more; leave one "
          "of them out, or use plain momentum (SgdOptions::nesterov = false)");
    }
  }
  return Status::Ok();
}

Program FoldGradients(const Program& program, const Optimizer& optimizer) {
  return Folder(program, optimizer).Run();
}

Status CheckReadsBeforeUpdates(const Plan& plan) {
  std::vector<bool> is_updated(plan.graph().values().size());
  for (const ScheduledOp& s : plan.schedule()) {
    if (s.phase != Phase::kMicrobatch) continue;
    const Op& op = plan.graph().op(s.op);
    for (ValueId v : op.inputs) {
      if (!is_updated[v.i]) continue;
      return Status::Failed(fmt::format(
          "op '{}' would read '{}' after its update; use another strategy of "
          "recomputation (PlanOptions::recompute), or plain momentum "
          "(SgdOptions::nesterov = false)",
          op.name, plan.graph().value(v).name));
    }
    for (uint32_t i = 0; i < op.inputs.size(); ++i) {
      const bool mutates = ((op.def->Mutates() >> i) & 1) != 0;
      if (mutates &&
          plan.graph().value(op.inputs[i]).role == Role::kParameter) {
        is_updated[op.inputs[i].i] = true;
      }
    }
  }
  return Status::Ok();
}

}  // namespace thimble::planner
