// SPDX-License-Identifier: Apache-2.0
//
// The time of an op's convolution alone: the same shape, storage, pass and
// images, without prologue, residual, statistics and sums. One thread at a time
// may use it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>

#include "base/parallel.h"
#include "graph/op.h"
#include "thimble/graph.h"

namespace thimble::bench {

class BareConvTimer {
 public:
  explicit BareConvTimer(int threads);

  // The median of some runs; 0 for an op that is no convolution. Each shape is
  // timed once.
  double Seconds(const Graph& graph, const Op& op);

 private:
  using Key = std::array<int64_t, 12>;
  std::unique_ptr<ThreadPool> pool_;
  std::map<Key, double> known_;
};

}  // namespace thimble::bench
