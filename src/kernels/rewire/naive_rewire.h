// SPDX-License-Identifier: Apache-2.0
//
// Test only: rewiring by its definition, on dense matrices with masks. Not safe
// from several threads on the same pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/rewire/rewire.h"
#include "kernels/tensor.h"
#include "thimble/sparsity.h"

namespace thimble::kernels::testing {

// One matrix of blocks: what is kept, and the bytes of each position's block in
// the weights and in each state.
struct NaiveMatrix {
  int64_t columns = 0;
  std::vector<bool> kept;
  // By tensor (weights first), then position.
  std::vector<std::vector<std::vector<std::byte>>> values;

  int64_t blocks() const { return static_cast<int64_t>(kept.size()); }
  int64_t CountKept() const;
};

struct NaivePool {
  WeightBlock block;
  std::vector<DType> dtypes;  // of the tensors
  std::vector<NaiveMatrix> matrices;

  // What is stored of tensor t.
  std::vector<std::byte> Stored(size_t t) const;
  // Reads what is stored.
  void Read(const PoolLayout& layout, const std::byte* index,
            std::span<const Tensor> tensors);
  std::vector<std::byte> Index(const PoolLayout& layout) const;
};

// Mean of |w| over a block.
float NaiveMagnitude(DType dtype, std::span<const std::byte> block);

RewireResult NaiveRewire(const RewireOptions& options, NaivePool& pool);

}  // namespace thimble::kernels::testing
