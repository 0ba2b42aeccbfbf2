// SPDX-License-Identifier: Apache-2.0
//
// Binding: an op of the plan with its pointers into the arena, and the function
// that calls its kernel. A line per op kind in bind.cc; whoever adds an op adds
// its line there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "graph/op.h"
#include "kernels/context.h"
#include "thimble/plan.h"

namespace thimble::runtime {

// What differs from run to run.
struct RunContext {
  int64_t count = 0;   // rows of this microbatch
  int64_t images = 0;  // rows of the whole step
  int64_t first = 0;   // of them, this microbatch's first
  // What masks are drawn from. Steps count from 1: the numbers of step 0 are
  // those of the initial weights.
  uint64_t seed = 0;
  uint64_t step = 0;
  // Not the first microbatch of the step: carried outputs are added to.
  bool accumulate = false;
  float learning_rate = 0.0f;
};

// The values that an op reads or writes: what they are, and where they lie.
class BoundValues {
 public:
  BoundValues(const Plan& plan, std::span<const ValueId> ids, std::byte* arena)
      : plan_(&plan), ids_(ids), arena_(arena) {}
  size_t size() const { return ids_.size(); }
  const ValueSpec& operator[](size_t i) const {
    return plan_->graph().value(ids_[i]).spec;
  }
  std::byte* bytes(size_t i) const { return arena_ + plan_->OffsetOf(ids_[i]); }

 private:
  const Plan* plan_;
  std::span<const ValueId> ids_;
  std::byte* arena_;
};

// What a runner gets. It is made from the plan each time that the op runs: a
// network has thousands of ops, and to keep theirs would take memory besides
// the arena.
struct BoundOp {
  const OpDef* def;
  BoundValues inputs;
  BoundValues outputs;
  uint32_t carried = 0;  // bit i: output i, see Plan::IsCarried
  kernels::KernelContext kernel;

  template <typename Op>
  const Op& As() const {
    return static_cast<const Op&>(*def);
  }
  template <typename T = float>
  T* In(size_t i) const {
    return reinterpret_cast<T*>(inputs.bytes(i));
  }
  template <typename T = float>
  T* Out(size_t i) const {
    return reinterpret_cast<T*>(outputs.bytes(i));
  }
  // Whether `run` adds to output i.
  bool Adds(size_t i, const RunContext& run) const {
    return run.accumulate && ((carried >> i) & 1) != 0;
  }
};

// Calls the kernel of one kind of op. Keeps nothing, allocates nothing.
using OpRunner = void (*)(const BoundOp& op, const RunContext& run);

// Elements of the rows that a run uses: all of them where `spec` has no batch.
inline int64_t Used(const ValueSpec& spec, const RunContext& run) {
  return spec.batched ? run.count * spec.shape.elements_from(1)
                      : spec.shape.elements();
}

inline int64_t Rows(const ValueSpec& spec, const RunContext& run) {
  return spec.batched ? run.count : spec.shape[0];
}

// REQUIRES: the kind is executable (not a mode-free form) and not a view.
OpRunner RunnerOf(OpKind kind);

}  // namespace thimble::runtime
