// SPDX-License-Identifier: Apache-2.0
//
// Storage: how the elements of a value are kept in memory. Mostly that is one
// element after the other in one dtype. Two additions may be combined with it:
//
// - Value blocks: small dtypes need a scale. Every `values` elements share one,
//   kept behind all elements.
// - Sparsity: only some elements are kept, as a member of a pool (sparsity.h).
//   Which ones says the pool's index, which is a value of its own.
//
// Scales begin at a multiple of kStorageAlignment. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "thimble/dtype.h"
#include "thimble/sparsity.h"

namespace thimble {

inline constexpr size_t kStorageAlignment = 8;

struct ValueBlocks {
  int64_t values;  // elements that share a scale
  DType scale;
  friend bool operator==(const ValueBlocks&, const ValueBlocks&) = default;
};

struct Sparsity {
  int64_t kept;       // blocks, when training begins: later others may be more
  WeightBlock block;  // or fewer
  uint32_t member;    // which matrix of the pool
  friend bool operator==(const Sparsity&, const Sparsity&) = default;
};

struct Storage {
  // Not explicit: a dtype alone is the usual storage.
  Storage(DType type) : dtype(type) {}  // NOLINT(google-explicit-constructor)

  // Of a tensor with `elements` elements: how many are kept,
  int64_t Kept(int64_t elements) const;
  // and the bytes of all parts together, of what is sparse as training begins.
  size_t Bytes(int64_t elements) const;

  // Where scales begin, in bytes from the first element. REQUIRES: blocks.
  size_t ScalesOffset(int64_t elements) const;

  // "f32", "u8 in blocks of 64", "f16, sparse"
  std::string ToString() const;

  friend bool operator==(const Storage&, const Storage&) = default;

  DType dtype;
  std::optional<ValueBlocks> blocks;
  std::optional<Sparsity> sparsity;
};

// Bytes in blocks of 64 that share a scale in bf16: the blocks that kernels
// read and write.
inline Storage U8InBlocks() {
  Storage storage = DType::kU8;
  storage.blocks = ValueBlocks{.values = 64, .scale = DType::kBF16};
  return storage;
}

}  // namespace thimble
