// SPDX-License-Identifier: Apache-2.0
//
// What an op gets when it runs (OpDef::Run): its values with their places in
// the arena, threads and scratch, and what differs from run to run. Made anew
// for each run; an op keeps nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "graph/op.h"
#include "kernels/context.h"
#include "kernels/grad_sink/grad_sink.h"
#include "kernels/tensor.h"
#include "thimble/rewiring.h"
#include "thimble/sparsity.h"

namespace thimble {

// What differs from run to run.
struct RunContext {
  AxisParts axes = {};  // how much of each axis this pass uses
  // What masks and rounding are drawn from. Steps count from 1: the numbers of
  // step 0 are those of the initial weights.
  uint64_t seed = 0;
  uint64_t step = 0;
  // The same without the steps that were skipped.
  uint64_t update = 0;
  // Not the first microbatch of the step: carried outputs are added to.
  bool accumulate = false;
  // Raised by what finds that a sum which would change state is not finite,
  // and leaves the state alone then. Null: nobody asks.
  std::atomic<bool>* overflow = nullptr;
  float learning_rate = 0.0f;
  float loss_scale = 1.0f;  // what the loss's gradient is multiplied by
  // Whether the executor is to say if a parameter's gradient is not finite.
  bool look_at_gradients = false;
  // What it has said of the microbatches before. Once it is false, state is
  // left as it is.
  bool is_finite_so_far = true;
  // What an update multiplies gradients with before it uses them.
  float gradient_scale = 1.0f;
  // The rate of the step that follows, for rounding errors that are handed on
  // to it; 0: as this step's.
  float next_learning_rate = 0.0f;
  // How sparse weights are to be rewired behind the update, and where to tell
  // what became of it; null: not this time.
  const RewireOptions* rewire = nullptr;
  RewireResult* rewired = nullptr;

  // REQUIRES: axis.valid().
  const AxisPart& PartOf(AxisId axis) const { return axes[axis.index()]; }
  // Rows of a value that this run uses: all of them where it has no axis.
  int64_t Rows(const ValueSpec& spec) const {
    return spec.axis.valid() ? PartOf(spec.axis).count : spec.shape[0];
  }
  int64_t Elements(const ValueSpec& spec) const {
    return spec.axis.valid() ? Rows(spec) * spec.shape.elements_from(1)
                             : spec.shape.elements();
  }
};

struct BoundValue {
  const ValueSpec* spec = nullptr;
  std::byte* data = nullptr;
  uint32_t stream = 0;  // see Value
  // Of a gradient that is not stored: what takes it instead.
  const kernels::GradFold* fold = nullptr;
  // Of a sparse value: what it keeps, and the pool that it is a member of,
  // which `data` is then.
  const Pattern* pattern = nullptr;
  const ValueSpec* pool = nullptr;
  int64_t first = 0;  // the pool's first value that is its own

  // In the storage type that the plan says.
  kernels::Tensor tensor() const {
    if (pattern == nullptr) return TensorOf(*spec);
    const kernels::Tensor own = TensorOf(*pool).From(first);
    return {own.data(), own.dtype(), own.scales(), pattern};
  }
  // That are stored, of a value that a run uses whole.
  int64_t elements() const {
    return pattern != nullptr ? pattern->values() : spec->shape.elements();
  }

 private:
  // Of blocks, only those of U8InBlocks() have kernels.
  kernels::Tensor TensorOf(const ValueSpec& of) const {
    const Storage& storage = of.storage;
    if (!storage.blocks.has_value()) return {data, storage.dtype};
    TH_CHECK(storage == U8InBlocks());
    const size_t scales = storage.ScalesOffset(of.shape.elements());
    return {data, storage.dtype, reinterpret_cast<uint16_t*>(data + scales)};
  }
};

struct BoundOp {
  std::span<const BoundValue> inputs;
  std::span<const BoundValue> outputs;
  uint32_t carried = 0;  // bit i: output i, see Plan::IsCarried
  kernels::KernelContext kernel;

  const ValueSpec& in_spec(size_t i) const { return *inputs[i].spec; }
  const ValueSpec& out_spec(size_t i) const { return *outputs[i].spec; }

  kernels::ConstTensor In(size_t i) const { return Mutable(i); }
  kernels::Tensor Out(size_t i) const { return outputs[i].tensor(); }
  // An input that the op changes where it lies (OpDef::Mutates).
  kernels::Tensor Mutable(size_t i) const { return inputs[i].tensor(); }
  // What is kept of an input, whatever its pattern: for what works on elements
  // alone.
  kernels::ConstTensor Values(size_t i) const {
    return inputs[i].tensor().values();
  }
  kernels::Tensor MutableValues(size_t i) const {
    return inputs[i].tensor().values();
  }
  // Where the op may lack its last inputs or outputs.
  kernels::ConstTensor InOrNone(size_t i) const {
    return i < inputs.size() ? In(i) : kernels::ConstTensor::None();
  }
  kernels::Tensor OutOrNone(size_t i) const {
    return i < outputs.size() ? Out(i) : kernels::Tensor::None();
  }
  // Whether `run` adds to output i.
  bool Adds(size_t i, const RunContext& run) const {
    return run.accumulate && ((carried >> i) & 1) != 0;
  }
};

}  // namespace thimble
