// SPDX-License-Identifier: Apache-2.0
//
// Plan: before any memory exists, in what order ops run and where every buffer
// lies. It has three phases in one arena: microbatch (forward and backward,
// once or several times per step), update, evaluate; time runs over them in
// this order. Immutable, safe to share between threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "thimble/graph.h"
#include "thimble/optimizer.h"
#include "thimble/precision.h"
#include "thimble/sparse_pool.h"
#include "thimble/sparse_weights.h"
#include "thimble/status.h"
#include "thimble/target_class.h"

namespace thimble {

enum class Phase : uint8_t { kMicrobatch, kUpdate, kEvaluate };
inline constexpr size_t kPhases = 3;

const char* PhaseName(Phase phase);

// How tensors may be stored, and the optimizer that goes with it.
struct PrecisionChoice {
  Precision precision;
  std::shared_ptr<const Optimizer> optimizer;  // null: PlanOptions::optimizer
};

struct PlanOptions {
  std::shared_ptr<const Optimizer> optimizer = Sgd();  // never null
  Precision precision;
  SparseWeights sparse;
  int threads = 1;
  // How much of the batch (of its images, say) goes through one forward and
  // backward pass; 0: the whole batch, which it must divide. A step adds up the
  // gradients of all its microbatches, then updates once. Batch norms see one
  // microbatch at a time; where that is one value per channel, training is
  // refused.
  int64_t microbatch = 0;
  // Batch norms see groups of this size, as if each were a microbatch, though
  // all are in one pass; 0: no groups. Must divide the microbatch, and there
  // must be batch norms.
  int64_t ghost_batch = 0;
  bool training = true;  // false: only the evaluate phase
  bool fuse = true;      // norm, ReLU and sums into the convolutions
  bool inplace = true;   // let ops overwrite inputs that they read last
  // Let buffers use the bytes of dead ones. Without it, for comparison, every
  // buffer has its own for the whole of a step.
  bool sharing = true;
  // What is dropped in forward and computed again for backward: none, no-bn,
  // every-M, residual-M, residual-M*, sqrt, recursive-K, revolve, revolve-S; or
  // auto, the least work that the budget allows. Results do not depend on it.
  std::string recompute = "none";
  // Let fused convolutions make the gradient of their input twice, so that it
  // is not stored beside what it is made from: where that lowers the peak; with
  // auto, where the budget asks for it. Results do not depend on it.
  bool two_pass = false;
  // Refuse a plan whose arena is larger.
  std::optional<uint64_t> budget;
  // Where nothing fits the budget otherwise, take the largest microbatch at
  // which something does: a divisor of the batch, not below `min_microbatch`
  // (0: the ghost batch; without one 8 where there are batch norms, else 1).
  // Not if `microbatch` is given. A `min_microbatch` alone is refused.
  bool allow_microbatch = false;
  int64_t min_microbatch = 0;
  // Where nothing fits the budget in `precision`, at any microbatch allowed,
  // take one of these: at the largest microbatch at which something does, the
  // one whose step costs the least on CPUs of `target_class`; of equals the
  // first. The plan's own options name the choice as `precision` and
  // `optimizer`. Nothing else depends on the class.
  std::vector<PrecisionChoice> allow_precision;
  // Where nothing fits the budget otherwise, in the precisions allowed, store
  // the first of these shares of weights with which something does: each above
  // 0 and below 1, and below the one before it. The plan's own options name the
  // choice as `sparse.nonzero`; the rest of `sparse` is as given.
  std::vector<double> allow_nonzero;
  TargetClass target_class = TargetClass::kGeneric;
};

// Half-open, in steps of the schedule.
struct Interval {
  uint32_t begin = 0;
  uint32_t end = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

// Bytes of the arena with a life: one value, several that share bytes (views,
// in-place results), or an op's scratch.
struct Buffer {
  std::string name;
  Role role = Role::kActivation;
  size_t bytes = 0;  // rounded up to the alignment
  size_t offset = 0;
  Interval live;
};

struct ScheduledOp {
  OpId op;
  Phase phase = Phase::kMicrobatch;
  std::optional<uint32_t> scratch;  // index of its buffer, if it has any
  bool recompute = false;           // repeats an op of the forward pass
};

struct ParameterState {
  ValueId parameter;
  ValueId gradient;            // invalid where the loss does not depend on it
  std::vector<ValueId> state;  // the optimizer's, as Optimizer::StateOf says
};

// What the first paper's rule would count (Sohoni et al., arXiv:1904.10631).
// Beside our own figures, never mixed with them.
struct PaperBytes {
  int64_t model = 0, optimizer = 0, activation = 0, total = 0;
};

struct PaperFigures {
  PaperBytes bytes;
  double flops_ratio = 1;  // with what is recomputed, over without
};

struct PlanParts {
  std::string model;
  Graph graph;  // executable ops of all phases
  PlanOptions options;
  int64_t batch = 0;
  int64_t microbatch = 0;
  BuildOptions build_options;     // see Model
  std::string model_fingerprint;  // see Plan
  Ends train, evaluate;           // as values of the executable graph
  std::vector<ParameterState> parameters;
  std::vector<ValueId> statistics;  // running ones: saved with the parameters
  std::optional<SparsePool> sparse;
  std::vector<ScheduledOp> schedule;
  std::vector<Buffer> buffers;
  std::vector<uint32_t> buffer_of;  // per value
  std::vector<bool> carried;        // per value, see Plan::IsCarried
  std::vector<ValueId> pool_of;     // per value, see Plan::PoolOf
  size_t arena_bytes = 0;
  size_t lower_bound = 0;                   // most bytes live at once
  uint32_t peak_time = 0;                   // the first moment with that many
  std::array<size_t, kRoles> peak_bytes{};  // by role, at peak_time
  // Forward and backward of a whole batch as executed.
  int64_t flops_step = 0;
  int64_t flops_recompute = 0;
  std::optional<PaperFigures> paper;
};

class Plan {
 public:
  // Use MakePlan.
  explicit Plan(PlanParts parts) : parts_(std::move(parts)) {}

  const std::string& model() const { return parts_.model; }
  const Graph& graph() const { return parts_.graph; }
  const PlanOptions& options() const { return parts_.options; }
  // What a step takes of the graph's first axis, and what one pass over the
  // microbatch or evaluate phase takes.
  int64_t batch() const { return parts_.batch; }
  int64_t microbatch() const { return parts_.microbatch; }
  const BuildOptions& build_options() const { return parts_.build_options; }
  // See Model::fingerprint.
  const std::string& model_fingerprint() const {
    return parts_.model_fingerprint;
  }
  // Passes of a full step.
  int64_t microbatches() const { return parts_.batch / parts_.microbatch; }
  const Ends& train_ends() const { return parts_.train; }
  const Ends& evaluate_ends() const { return parts_.evaluate; }
  const Optimizer& optimizer() const { return *parts_.options.optimizer; }
  std::span<const ParameterState> parameters() const {
    return parts_.parameters;
  }
  std::span<const ValueId> statistics() const { return parts_.statistics; }
  // None where all weights are dense.
  const std::optional<SparsePool>& sparse() const { return parts_.sparse; }
  // Elements of all parameters, those that sparse ones do not keep included.
  int64_t ParameterCount() const;
  std::span<const ScheduledOp> schedule() const { return parts_.schedule; }
  std::span<const Buffer> buffers() const { return parts_.buffers; }

  size_t arena_bytes() const { return parts_.arena_bytes; }
  size_t lower_bound() const { return parts_.lower_bound; }
  // Bytes of `role` live at the peak; over all roles they add up to
  // lower_bound().
  size_t peak_bytes(Role role) const {
    return parts_.peak_bytes[static_cast<size_t>(role)];
  }
  // When most bytes are live: an index into schedule(), and the op there.
  uint32_t peak_time() const { return parts_.peak_time; }
  const Op& peak_op() const;
  int64_t flops_step() const { return parts_.flops_step; }
  int64_t flops_recompute() const { return parts_.flops_recompute; }
  // None for strategies that the paper does not name.
  const std::optional<PaperFigures>& paper() const { return parts_.paper; }

  // REQUIRES: v belongs to graph().
  const Buffer& BufferOf(ValueId v) const;
  // Of a member, where its pool begins.
  size_t OffsetOf(ValueId v) const { return BufferOf(v).offset; }
  // The pool that a sparse value is a member of; invalid for other values.
  // Where in it the member lies now, its index says.
  ValueId PoolOf(ValueId v) const { return parts_.pool_of[v.i]; }
  // Whether `v` lives through all microbatches of a step, of which there are
  // several: what each of them adds to, for the update to read.
  bool IsCarried(ValueId v) const { return parts_.carried[v.i]; }

  // Whether the microbatch phase changes parameters: there are no gradients of
  // weights, and the optimizer needs each at once (Optimizer::FoldOp).
  bool UpdatesInBackward() const;

  // All of it, for tests that make a broken copy.
  const PlanParts& parts() const { return parts_; }

  // The whole plan as stable text, used by golden tests.
  std::string Explain() const;

 private:
  PlanParts parts_;
};

// Differentiates the model, schedules, finds lifetimes, shares bytes and places
// every buffer. Fails where the options are impossible or the budget too small;
// the message then names the op at the peak and the budgets that would do.
// thimble/plan_search.h gives the same as data, and trade-offs.
Result<Plan> MakePlan(const Model& model, const PlanOptions& options);

// The most that a process takes beside the arena while it trains by `plan`, as
// resident bytes: code as it is first run, stacks, buffers to save with, and
// what the executor keeps of each op.
size_t BesideArenaBytes(const Plan& plan);

// Checks a plan by simulating who wrote which bytes last. Slow on purpose, and
// shares no code with the planner.
Status ValidatePlan(const Plan& plan);

}  // namespace thimble
