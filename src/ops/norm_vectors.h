// SPDX-License-Identifier: Apache-2.0
//
// What a prologue multiplies and adds, per channel. It is made anew in each
// run, in scratch behind the kernel's own shared part.
#pragma once

#include <cstdint>

#include "ops/bound_op.h"

namespace thimble::ops {

// The kernel's scratch, and behind its shared part room for the vectors.
inline constexpr int64_t kNormVectors = 4;
Workspace WithNormVectors(Workspace workspace, int64_t channels);

struct NormVectors {
  float* scale;
  float* shift;
  float* inv_std;
};

// Of a batch norm. REQUIRES: the op's scratch is WithNormVectors.
struct NormInputs {
  const float* mean;
  const float* variance;
  const float* gamma;
  const float* beta;
};
NormVectors MakeNormVectors(const BoundOp& op, int64_t channels, float epsilon,
                            const NormInputs& norm);

}  // namespace thimble::ops
