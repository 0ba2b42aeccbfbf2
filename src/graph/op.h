// SPDX-License-Identifier: Apache-2.0
//
// OpDef: everything that planner and runtime must know of an op. One file in
// src/ops holds one op: its forward, its backward forms, its shapes, gradient,
// in-place permission, FLOPs, scratch, and the call of its kernel. An OpDef
// carries its own attributes (stride, epsilon, …) and is immutable, so graphs
// share it freely.
//
// A network's graph holds mode-free ops (a batch norm, say). Forward() puts the
// form that trains, or the one that evaluates, into an executable graph, and
// Gradient() the ops of its backward pass.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/workspace.h"
#include "thimble/graph.h"
#include "thimble/status.h"

namespace thimble {

struct BoundOp;
struct RunContext;

// What of the forward pass an op's backward reads. Bit i of `inputs` stands for
// the value of input i. `output_bits`: one bit per output element is enough (a
// ReLU's sign), the whole output will do too. `saved`: the training form makes
// small extra values of its own (batch statistics, a pooling window's winner).
struct BackwardNeeds {
  uint32_t inputs = 0;
  bool output = false;
  bool output_bits = false;
  bool saved = false;
};

// Output `output` may be written over input `input` by the op that reads it
// last; both have the same number of bytes.
struct InPlacePair {
  uint32_t input;
  uint32_t output;
};

// The op that computes an op's first output again, from the same inputs and,
// with `reads_saved`, from the other outputs of the first run behind them.
struct RepeatForm {
  std::shared_ptr<const OpDef> def;
  bool reads_saved = false;
};

// Mean and variance, or their running twins.
struct ValuePair {
  ValueId first, second;
};

enum class Mode : uint8_t { kTrain, kEvaluate };

// Adds executable ops to the graph being lowered into. Ops that were accepted
// in a network's graph cannot fail here, hence no Status.
class Emitter {
 public:
  virtual ~Emitter() = default;
  virtual const Graph& graph() const = 0;
  // Adds an op; `role` is its outputs'.
  virtual std::vector<ValueId> Emit(std::string name,
                                    std::shared_ptr<const OpDef> def,
                                    std::vector<ValueId> inputs, Role role) = 0;
  // Where one output of an op is for something else than the others.
  virtual void SetRole(ValueId value, Role role) = 0;
  // Mean and variance over the batch, per channel: those that the op that made
  // `value` has given, else of an op of their own, made now.
  virtual ValuePair MomentsOf(ValueId value) = 0;
  virtual void SetMoments(ValueId value, ValuePair moments) = 0;
  // Groups of a batch that its statistics are taken of, each on its own: 1 for
  // the whole batch.
  virtual int64_t statistics_groups() const = 0;
  // Has the update phase copy `next` over `state`: a step that is skipped
  // leaves `state` as it was.
  virtual void CommitAtUpdate(ValueId state, ValueId next) = 0;
};

struct ForwardContext {
  Emitter& emit;
  Mode mode;
  const std::string& name;
  std::span<const ValueId> inputs;
  // Some other op's backward reads this op's (first) output anyway.
  bool output_is_kept = false;
  // The (first) output is normalised by its batch statistics downstream.
  bool output_is_normalized = false;
};

struct ForwardResult {
  std::vector<ValueId> outputs;  // one per output of the mode-free op
  std::vector<ValueId> saved;    // handed on to Gradient
};

struct GradientContext {
  Emitter& emit;
  const std::string& name;
  std::span<const ValueId> inputs;
  std::span<const ValueId> outputs;
  std::span<const ValueId> saved;
  // One per output; invalid where nothing downstream depends on it. The loss op
  // gets none: its own gradient is 1.
  std::span<const ValueId> grad_outputs;
  // One per input: whether its gradient is wanted.
  std::span<const bool> wanted;
  // One per input: the sum of its gradients so far, invalid where there is
  // none.
  std::span<const ValueId> pending;
  // One per input, to be set for each wanted one, and whether the pending
  // gradient is already part of it.
  std::span<ValueId> grad_inputs;
  std::span<bool> folded;
};

// Make OpDefs with std::make_shared: graphs share them.
class OpDef : public std::enable_shared_from_this<OpDef> {
 public:
  virtual ~OpDef() = default;

  // What kind of op this is, in dumps and messages: one name per class.
  virtual std::string_view name() const = 0;
  // All that two ops of this class can differ in, as stable text: "stride 2,
  // padding 1" (graph/attributes.h). By default there is nothing.
  virtual std::string Attributes() const { return {}; }

  // Outputs for these inputs, or why they do not fit. `name()` and the op's own
  // name are put in front of the message by the caller.
  virtual Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const = 0;

  // By default the op itself, in both modes.
  virtual ForwardResult Forward(ForwardContext& context) const;
  virtual BackwardNeeds Needs() const { return {}; }
  // Backward forms, updates and the like have no gradient of their own.
  virtual void Gradient(GradientContext& context) const;

  virtual std::vector<InPlacePair> InPlace() const { return {}; }
  // How to run an executable op again, to the same bits. By default as it is,
  // which makes all outputs anew. A form that makes the first output only
  // leaves the others, statistics, as the first run made them.
  virtual RepeatForm Repeat() const { return {shared_from_this(), false}; }
  // Bit i: input i, a weight, may be sparse (thimble/sparsity.h). Its gradient
  // then has the same storage. Of mode-free forms.
  virtual uint32_t TakesSparse() const { return 0; }
  // Output 0 is input 0's bytes under another shape; nothing is executed.
  virtual bool IsView() const { return false; }
  // Bit i: output i can be carried through the microbatches of a step: the
  // first one writes it, the next ones add to it, or go on from it. Such an
  // output is never written over an input.
  virtual uint32_t Accumulates() const { return 0; }
  // Bit i: the op changes input i (state) where it lies.
  virtual uint32_t Mutates() const { return 0; }

  // A multiply-add counts as two. By default one per element of the larger of
  // the first input and the first output.
  virtual int64_t Flops(std::span<const ValueSpec> inputs,
                        std::span<const ValueSpec> outputs) const;
  // The part of Flops that computes again what was computed before.
  virtual int64_t RecomputeFlops(std::span<const ValueSpec> inputs,
                                 std::span<const ValueSpec> outputs) const;
  virtual Workspace Scratch(std::span<const ValueSpec> inputs,
                            std::span<const ValueSpec> outputs) const;

  // Calls the op's kernel (ops/bound_op.h). Allocates nothing. Mode-free forms
  // and views are never run.
  virtual void Run(const BoundOp& op, const RunContext& run) const;
};

// Whether the op's definition is a `Def`.
template <typename Def>
bool Is(const Op& op) {
  return dynamic_cast<const Def*>(op.def.get()) != nullptr;
}

}  // namespace thimble
