// SPDX-License-Identifier: Apache-2.0
//
// DryRun: the bytes of ops that run on paper, some of them, in an order of
// their own, with the in-place rules of the planner. Not thread-safe: a run
// uses the object's own memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "graph/op.h"
#include "planner/program.h"
#include "thimble/plan.h"

namespace thimble::planner {

class DryRun {
 public:
  // Both must outlive it.
  DryRun(const Program& program, const PlanOptions& options);

  // Most bytes of activations, gradients and scratch while `ops` run.
  // `outside` is there and stays, and is not counted; `stays` is needed after
  // the last op.
  int64_t Peak(const std::vector<OpId>& ops, std::span<const ValueId> outside,
               std::span<const ValueId> stays);

 private:
  static constexpr int32_t kUnknown = -1;
  static constexpr int32_t kNotCounted = -2;

  struct Life {
    Interval live;
    size_t bytes;
    bool shared = false;  // counted under another
  };

  const Op& OpOf(const std::vector<OpId>& ops, uint32_t t) const {
    return program_.graph.op(ops[t]);
  }
  void Reset();
  void Mark(ValueId v, int32_t as);
  bool IsCounted(ValueId v) const;
  void Extend(ValueId v, uint32_t from, uint32_t to);
  bool IsKnown(ValueId v) const { return local_[v.i] >= 0; }
  Life& LifeOf(ValueId v) { return lives_[static_cast<size_t>(local_[v.i])]; }
  void Join(ValueId in, ValueId out);
  void ShareBytes(const std::vector<OpId>& ops);
  bool IsFree(const Op& op, std::span<const InPlacePair> pairs,
              const InPlacePair& pair, uint32_t time);
  int64_t SumUp(const std::vector<OpId>& ops) const;

  const Program& program_;
  const PlanOptions& options_;
  uint32_t end_ = 0;
  std::vector<int32_t> local_;  // per value: index into lives_, or a mark
  std::vector<bool> lasting_;   // per value
  std::vector<uint32_t> marked_;
  std::vector<Life> lives_;
};

}  // namespace thimble::planner
