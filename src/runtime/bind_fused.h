// SPDX-License-Identifier: Apache-2.0
//
// Bindings of the fused convolutions (ops/fused_conv.h, ops/two_pass_grad.h).
#pragma once

#include "runtime/bind.h"

namespace thimble::runtime {

void RunImageConv(const BoundOp& op, const RunContext& run);
void RunImageConvGradWeight(const BoundOp& op, const RunContext& run);
void RunMoments(const BoundOp& op, const RunContext& run);
void RunNormReluConv(const BoundOp& op, const RunContext& run);
void RunNormReluConvGradInput(const BoundOp& op, const RunContext& run);
void RunNormReluConvGradWeight(const BoundOp& op, const RunContext& run);
void RunNormReluConvGradSums(const BoundOp& op, const RunContext& run);
void RunNormReluConvGradRest(const BoundOp& op, const RunContext& run);
void RunNormGrad(const BoundOp& op, const RunContext& run);

}  // namespace thimble::runtime
