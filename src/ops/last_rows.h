// SPDX-License-Identifier: Apache-2.0
//
// last-rows: x [T, C], ends [S] -> y [S, C], the row of the last token of each
// sentence: what a decoder goes on from. For evaluation alone: it has no
// backward form.
#pragma once

#include "graph/op.h"

namespace thimble::ops {

class LastRows final : public OpDef {
 public:
  enum Input : uint32_t { kX, kEnds };

  std::string_view name() const override { return "last-rows"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  int64_t Flops(std::span<const ValueSpec>,
                std::span<const ValueSpec>) const override {
    return 0;
  }
};

}  // namespace thimble::ops
