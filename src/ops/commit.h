// SPDX-License-Identifier: Apache-2.0
//
// commit: state, next: copies next over state, in the update phase. A step that
// is skipped leaves the state as it was.
#pragma once

#include "graph/op.h"

namespace thimble::ops {

class Commit final : public OpDef {
 public:
  enum Input : uint32_t { kState, kNext };

  std::string_view name() const override { return "commit"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  uint32_t Mutates() const override { return 0b1; }
  int64_t Flops(std::span<const ValueSpec>,
                std::span<const ValueSpec>) const override {
    return 0;
  }
};

}  // namespace thimble::ops
