// SPDX-License-Identifier: Apache-2.0
//
// Where members of a plan's sparse pools lie now, as the index in its arena
// says. Pure functions of both.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "thimble/plan.h"
#include "thimble/sparsity.h"

namespace thimble::runtime {

// What a value with this spec keeps. REQUIRES, here and below: it is sparse.
inline Pattern MemberPattern(const Plan& plan, const std::byte* arena,
                             const ValueSpec& member) {
  const SparsePool& pool = *plan.sparse();
  return pool.layout.Of(arena + plan.OffsetOf(pool.index),
                        member.storage.sparsity->member);
}

// The first value of its pool that is the member's: values follow each other
// without a gap, or, where they are in blocks that share a scale, from the
// beginning of one.
inline int64_t FirstInPool(const Plan& plan, const std::byte* arena,
                           const ValueSpec& member) {
  const SparsePool& pool = *plan.sparse();
  const std::byte* index = arena + plan.OffsetOf(pool.index);
  const uint32_t m = member.storage.sparsity->member;
  if (!member.storage.blocks.has_value()) {
    return pool.layout.Of(index, m).first * pool.layout.block().values();
  }
  const int64_t unit = member.storage.blocks->values;
  int64_t first = 0;
  for (uint32_t i = 0; i < m; ++i) {
    first += (pool.layout.Of(index, i).values() + unit - 1) / unit * unit;
  }
  return first;
}

}  // namespace thimble::runtime
