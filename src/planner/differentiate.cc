// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "base/rng.h"
#include "graph/ends.h"
#include "graph/op.h"
#include "ops/accumulate.h"
#include "ops/add.h"
#include "ops/commit.h"
#include "ops/fused_conv.h"
#include "ops/norm_relu_conv.h"
#include "planner/program.h"
#include "planner/sparse_pool.h"
#include "planner/storage_of.h"

namespace thimble::planner {
namespace {

// Adds ops to a program's graph, in the phase that is being written.
class ProgramEmitter final : public Emitter {
 public:
  ProgramEmitter(Program& program, const Precision& precision, int64_t groups)
      : program_(program), precision_(precision), groups_(groups) {}

  void set_phase(Phase phase) {
    phase_ = phase;
    origin_ = {};
  }
  void set_origin(const OpOrigin& origin) { origin_ = origin; }

  const Graph& graph() const override { return program_.graph; }

  std::vector<ValueId> Emit(std::string name, std::shared_ptr<const OpDef> def,
                            std::vector<ValueId> inputs, Role role) override {
    const OpId id{static_cast<uint32_t>(program_.graph.ops().size())};
    auto made = program_.graph.AddOp(std::move(name), std::move(def),
                                     std::move(inputs), role);
    TH_CHECK(made.ok());  // the model's graph was already checked
    for (ValueId v : *made) StoreAsPlanned(v);
    program_.phases[static_cast<size_t>(phase_)].push_back(id);
    program_.origins.push_back(origin_);
    return *made;
  }

  void SetRole(ValueId value, Role role) override {
    program_.graph.SetRole(value, role);
    StoreAsPlanned(value);
  }

  ValuePair MomentsOf(ValueId value) override {
    for (const auto& [of, moments] : moments_) {
      if (of == value) return moments;
    }
    const auto made = Emit(graph().value(value).name + ".moments",
                           std::make_shared<ops::Moments>(groups_), {value},
                           Role::kStatistic);
    moments_.push_back({value, {made[0], made[1]}});
    return {made[0], made[1]};
  }

  void SetMoments(ValueId value, ValuePair moments) override {
    SetRole(moments.first, Role::kStatistic);
    SetRole(moments.second, Role::kStatistic);
    moments_.push_back({value, moments});
  }

  int64_t statistics_groups() const override { return groups_; }

  void CommitAtUpdate(ValueId state, ValueId next) override {
    commits_.push_back({state, next});
  }

  void EmitCommits() {
    for (const auto& [state, next] : commits_) {
      Emit(graph().value(state).name + ".commit",
           std::make_shared<ops::Commit>(), {state, next}, Role::kStatistic);
    }
  }

 private:
  void StoreAsPlanned(ValueId v) {
    const Value& value = program_.graph.value(v);
    program_.graph.SetStorage(v, StorageOf(value.spec, value.role, precision_));
    if (value.spec.storage.blocks.has_value() && value.stream == 0) {
      program_.graph.SetStream(v, GradientStream(streams_++));
    }
  }

  Program& program_;
  Precision precision_;
  int64_t groups_;
  Phase phase_ = Phase::kMicrobatch;
  OpOrigin origin_;
  uint32_t streams_ = 0;  // of gradients in blocks, so far
  std::vector<std::pair<ValueId, ValueId>> commits_;
  std::vector<std::pair<ValueId, ValuePair>> moments_;
};

class Differentiator {
 public:
  Differentiator(const Model& model, const PlanOptions& options,
                 int64_t microbatches)
      : model_(model),
        training_(options.training),
        optimizer_(*options.optimizer),
        precision_(options.precision),
        sparse_(options.sparse),
        choice_(*ChooseSparse(model, options.sparse)),
        emit_(
            program_, options.precision,
            options.ghost_batch > 0 ? model.batch() / options.ghost_batch : 1) {
    program_.graph = Graph({source().axes().begin(), source().axes().end()});
    program_.microbatches = microbatches;
  }

  Program Run() {
    CopyState();
    FindWanted();
    FindKept();
    if (training_) {
      emit_.set_phase(Phase::kMicrobatch);
      program_.train = Forward(Mode::kTrain);
      Backward();
      emit_.set_phase(Phase::kUpdate);
      Update();
    }
    emit_.set_phase(Phase::kEvaluate);
    program_.evaluate = Forward(Mode::kEvaluate);
    return std::move(program_);
  }

 private:
  const Graph& source() const { return model_.graph; }

  // Parameters and running statistics: one value for all phases.
  void CopyState() {
    if (!choice_.weights.empty()) {
      // Before their members, whose buffers they are.
      PoolValues of = {StateSpec(choice_.weights.front()), sparse_};
      if (training_) {
        if (precision_.keeps_gradients) of.gradient = precision_.gradients;
        of.state = optimizer_.StateOf(of.weight);
      }
      program_.sparse = AddPools(choice_, of, program_.graph);
    }
    state_.resize(source().values().size());
    for (uint32_t i = 0; i < state_.size(); ++i) {
      const Value& v = source().values()[i];
      if (v.producer.valid() || v.role == Role::kInput) continue;
      const ValueSpec spec = StateSpec({i});
      state_[i] = program_.graph.AddValue(v.name, spec, v.role, v.init);
      if (v.role == Role::kParameter) {
        if (spec.storage.sparsity.has_value()) {
          const auto at = static_cast<uint32_t>(program_.parameters.size());
          program_.sparse->members.push_back(at);
        }
        program_.parameters.push_back({state_[i], {}, {}});
      } else {
        program_.statistics.push_back(state_[i]);
      }
    }
  }

  ValueSpec StateSpec(ValueId v) const {
    ValueSpec spec = source().value(v).spec;
    spec.storage.sparsity = choice_.Of(v, sparse_.block);
    spec.storage = StorageOf(spec, source().value(v).role, precision_);
    return spec;
  }

  // A value's gradient is wanted when a parameter stands behind it.
  void FindWanted() {
    wanted_.resize(source().values().size());
    first_reader_.assign(source().values().size(), source().ops().size());
    for (size_t k = source().ops().size(); k-- > 0;) {
      for (ValueId v : source().ops()[k].inputs) first_reader_[v.i] = k;
    }
    for (size_t i = 0; i < wanted_.size(); ++i) {
      wanted_[i] = source().values()[i].role == Role::kParameter;
    }
    for (const Op& op : source().ops()) {
      bool any = false;
      for (ValueId v : op.inputs) any = any || wanted_[v.i];
      for (ValueId v : op.outputs) wanted_[v.i] = any;
    }
  }

  // A value is kept for backward anyway when some reader's backward reads it.
  void FindKept() {
    kept_.resize(source().values().size());
    for (const Op& op : source().ops()) {
      if (op.outputs.empty() || !wanted_[op.outputs[0].i]) continue;
      const BackwardNeeds needs = op.def->Needs();
      for (size_t k = 0; k < op.inputs.size(); ++k) {
        if (((needs.inputs >> k) & 1) != 0) kept_[op.inputs[k].i] = true;
      }
      if (needs.output) kept_[op.outputs[0].i] = true;
      // A view's reader reads the bytes of what is viewed.
    }
    // A fused op asks for its input's statistics.
    normalized_.resize(source().values().size());
    for (const Op& op : source().ops()) {
      if (Is<ops::FusedConv>(op)) {
        normalized_[op.inputs[0].i] = true;
      }
    }
    // Walk back: what is kept of a view is kept of the value under it.
    for (size_t k = source().ops().size(); k-- > 0;) {
      const Op& op = source().ops()[k];
      if (op.def->IsView() && kept_[op.outputs[0].i]) {
        kept_[op.inputs[0].i] = true;
      }
    }
  }

  // Lowers every op in `mode`; fills current_ (model value -> program value).
  Ends Forward(Mode mode) {
    current_ = state_;
    const char* prefix = mode == Mode::kEvaluate ? "eval." : "";
    for (const End& end : model_.ends.feeds) {
      const Value& value = source().value(end.value);
      current_[end.value.i] = program_.graph.AddValue(prefix + value.name,
                                                      value.spec, Role::kInput);
    }
    saved_.assign(source().ops().size(), {});
    for (size_t k = 0; k < source().ops().size(); ++k) {
      const Op& op = source().ops()[k];
      if (mode == Mode::kTrain) {
        emit_.set_origin({OpOrigin::Part::kForward, static_cast<uint32_t>(k)});
      }
      std::vector<ValueId> inputs;
      for (ValueId v : op.inputs) inputs.push_back(current_[v.i]);
      const std::string name = prefix + op.name;
      ForwardContext context{emit_,
                             mode,
                             name,
                             inputs,
                             kept_[op.outputs[0].i],
                             normalized_[op.outputs[0].i]};
      ForwardResult made = op.def->Forward(context);
      TH_CHECK(made.outputs.size() == op.outputs.size());
      for (size_t out = 0; out < op.outputs.size(); ++out) {
        current_[op.outputs[out].i] = made.outputs[out];
      }
      saved_[k] = std::move(made.saved);
    }
    return MapEnds(model_.ends, [this](ValueId v) { return current_[v.i]; });
  }

  void Backward() {
    gradient_.assign(source().values().size(), ValueId{});
    for (size_t k = source().ops().size(); k-- > 0;) {
      const Op& op = source().ops()[k];
      if (!wanted_[op.outputs[0].i]) continue;
      const bool reaches_loss = op.outputs[0] == model_.ends.loss ||
                                std::ranges::any_of(op.outputs, [&](ValueId v) {
                                  return gradient_[v.i].valid();
                                });
      if (!reaches_loss) continue;
      emit_.set_origin({OpOrigin::Part::kBackward, static_cast<uint32_t>(k)});
      BackwardOf(op, saved_[k]);
      // At once, where no other op reads a parameter, so that a microbatch's
      // own part is dropped early.
      for (ValueId v : op.inputs) {
        if (first_reader_[v.i] == k) FinishGradient(v);
      }
    }
    for (uint32_t i = 0; i < gradient_.size(); ++i) FinishGradient({i});
    for (ParameterState& state : program_.parameters) {
      // Found by position: CopyState made them in the order of the values.
      for (uint32_t i = 0; i < state_.size(); ++i) {
        if (state_[i] == state.parameter) state.gradient = gradient_[i];
      }
      if (state.gradient.valid()) {
        emit_.SetRole(state.gradient, Role::kGradient);
      }
    }
  }

  void BackwardOf(const Op& op, const std::vector<ValueId>& saved) {
    std::vector<ValueId> inputs, outputs, grad_outputs;
    for (ValueId v : op.inputs) inputs.push_back(current_[v.i]);
    for (ValueId v : op.outputs) {
      outputs.push_back(current_[v.i]);
      grad_outputs.push_back(gradient_[v.i]);
    }
    const auto wanted = std::make_unique<bool[]>(inputs.size());
    const auto folded = std::make_unique<bool[]>(inputs.size());
    std::vector<ValueId> grad_inputs(inputs.size());
    std::vector<ValueId> pending(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      wanted[i] = wanted_[op.inputs[i].i];
      pending[i] = gradient_[op.inputs[i].i];
    }
    GradientContext context{emit_,
                            op.name,
                            inputs,
                            outputs,
                            saved,
                            grad_outputs,
                            {wanted.get(), inputs.size()},
                            pending,
                            grad_inputs,
                            {folded.get(), inputs.size()}};
    op.def->Gradient(context);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!wanted[i]) continue;
      TH_CHECK(grad_inputs[i].valid());
      if (folded[i]) {
        gradient_[op.inputs[i].i] = grad_inputs[i];
      } else {
        AddGradient(op.inputs[i], grad_inputs[i]);
      }
    }
  }

  // Where a step has several microbatches, the gradient of a parameter is
  // summed over them. One whose op cannot add to what earlier microbatches gave
  // goes through an op that can.
  void FinishGradient(ValueId v) {
    ValueId& gradient = gradient_[v.i];
    if (program_.microbatches == 1 || !gradient.valid() ||
        source().value(v).role != Role::kParameter || CanAccumulate(gradient)) {
      return;
    }
    gradient = emit_.Emit(source().value(v).name + ".accumulate",
                          std::make_shared<ops::Accumulate>(), {gradient},
                          Role::kGradient)[0];
  }

  bool CanAccumulate(ValueId gradient) const {
    const Op& op = program_.graph.op(program_.graph.value(gradient).producer);
    const auto at = std::ranges::find(op.outputs, gradient);
    return ((op.def->Accumulates() >> (at - op.outputs.begin())) & 1) != 0;
  }

  // Sums as the contributions come, so that at most two of them are live.
  void AddGradient(ValueId of, ValueId contribution) {
    ValueId& sum = gradient_[of.i];
    if (!sum.valid()) {
      sum = contribution;
      return;
    }
    sum = emit_.Emit(source().value(of).name + ".grad_sum",
                     std::make_shared<ops::Add>(), {sum, contribution},
                     program_.graph.value(sum).role)[0];
  }

  void Update() {
    for (uint32_t i = 0; i < program_.parameters.size(); ++i) {
      ParameterState& state = program_.parameters[i];
      if (!state.gradient.valid()) continue;
      const Value parameter = program_.graph.value(state.parameter);
      std::vector<ValueId> inputs = {state.parameter, state.gradient};
      for (const Optimizer::State& kept : optimizer_.StateOf(parameter.spec)) {
        state.state.push_back(program_.graph.AddValue(
            fmt::format("{}.{}", parameter.name, kept.name), kept.spec,
            Role::kOptimizerState, kept.init));
        inputs.push_back(state.state.back());
      }
      emit_.Emit(parameter.name + ".update", optimizer_.UpdateOp(i),
                 std::move(inputs), Role::kParameter);
    }
    emit_.EmitCommits();
    if (program_.sparse.has_value()) EmitRewiring(*program_.sparse, emit_);
  }

  const Model& model_;
  bool training_;
  const Optimizer& optimizer_;
  Precision precision_;
  const SparseWeights& sparse_;
  SparseChoice choice_;
  Program program_;
  ProgramEmitter emit_;
  // All indexed by the model's value ids.
  std::vector<ValueId> state_;
  std::vector<ValueId> current_;
  std::vector<ValueId> gradient_;
  std::vector<bool> wanted_;
  std::vector<size_t> first_reader_;  // an op's index
  std::vector<bool> kept_;
  std::vector<bool> normalized_;
  std::vector<std::vector<ValueId>> saved_;  // by op
};

}  // namespace

Program Differentiate(const Model& model, const PlanOptions& options,
                      int64_t microbatches) {
  return Differentiator(model, options, microbatches).Run();
}

}  // namespace thimble::planner
