// SPDX-License-Identifier: Apache-2.0
//
// One step of Chen et al.'s ablation and the bytes that it takes. Pure
// functions, safe from every thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "thimble/graph.h"
#include "thimble/status.h"

namespace thimble::reproduce {

struct Ablation {
  const char* name;
  const char* recompute;
  bool fuse;
  bool inplace;
  bool sharing;  // bytes of dead buffers are used again
};

struct AblationBytes {
  size_t feature_maps = 0;  // and their gradients, at the peak
  size_t arena = 0;         // everything
  double flops_ratio = 1;
  std::optional<int64_t> paper_activations;  // by the rule of Sohoni et al.
};

Result<AblationBytes> MeasureAblation(const Model& model,
                                      const Ablation& ablation, int threads);

}  // namespace thimble::reproduce
