// SPDX-License-Identifier: Apache-2.0
#include "ops/norm_vectors.h"

#include "kernels/norm/norm.h"
#include "ops/bound_op.h"

namespace thimble::ops {

Workspace WithNormVectors(Workspace workspace, int64_t channels) {
  workspace.shared =
      RoundUpToAlignment(workspace.shared) +
      static_cast<size_t>(kNormVectors * channels) * sizeof(float);
  return workspace;
}

NormVectors MakeNormVectors(const BoundOp& op, int64_t channels, float epsilon,
                            const NormInputs& norm) {
  const size_t bytes = RoundUpToAlignment(
      static_cast<size_t>(kNormVectors * channels) * sizeof(float));
  auto* base = reinterpret_cast<float*>(
      op.kernel.scratch + RoundUpToAlignment(op.kernel.workspace.shared) -
      bytes);
  const NormVectors v{base, base + channels, base + 2 * channels};
  kernels::BatchNormCoefficients(channels, epsilon, norm.mean, norm.variance,
                                 norm.gamma, norm.beta, v.scale, v.shift,
                                 v.inv_std);
  return v;
}

}  // namespace thimble::ops
