// SPDX-License-Identifier: Apache-2.0
//
// Binding: an op of the plan, its pointers into the arena and its kernel become
// one callable, made once. A line per op kind in bind.cc; whoever adds an op
// adds its line there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "graph/op.h"
#include "kernels/context.h"

namespace thimble::runtime {

// What differs from run to run.
struct RunContext {
  int64_t count = 0;   // rows of this microbatch
  int64_t images = 0;  // rows of the whole step
  // Not the first microbatch of the step: carried outputs are added to.
  bool accumulate = false;
  float learning_rate = 0.0f;
};

using BoundOp = std::function<void(const RunContext&)>;

struct BindContext {
  const OpDef* def;
  std::vector<ValueSpec> inputs;
  std::vector<ValueSpec> outputs;
  std::vector<std::byte*> input_bytes;
  std::vector<std::byte*> output_bytes;
  uint32_t carried = 0;  // bit i: output i, see Plan::IsCarried
  kernels::KernelContext kernel;

  template <typename Op>
  const Op& As() const {
    return static_cast<const Op&>(*def);
  }
  template <typename T = float>
  T* In(size_t i) const {
    return reinterpret_cast<T*>(input_bytes[i]);
  }
  template <typename T = float>
  T* Out(size_t i) const {
    return reinterpret_cast<T*>(output_bytes[i]);
  }
  // Whether `run` adds to output i.
  bool Adds(size_t i, const RunContext& run) const {
    return run.accumulate && ((carried >> i) & 1) != 0;
  }
};

// REQUIRES: the op is executable (not a mode-free form) and not a view.
BoundOp Bind(const BindContext& context);

}  // namespace thimble::runtime
