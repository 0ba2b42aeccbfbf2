// SPDX-License-Identifier: Apache-2.0
//
// Bindings of the fused convolutions (ops/fused_conv.h, ops/two_pass_grad.h).
#pragma once

#include "runtime/bind.h"

namespace thimble::runtime {

BoundOp BindImageConv(const BindContext& context);
BoundOp BindImageConvGradWeight(const BindContext& context);
BoundOp BindMoments(const BindContext& context);
BoundOp BindNormReluConv(const BindContext& context);
BoundOp BindNormReluConvGradInput(const BindContext& context);
BoundOp BindNormReluConvGradWeight(const BindContext& context);
BoundOp BindNormReluConvGradSums(const BindContext& context);
BoundOp BindNormReluConvGradRest(const BindContext& context);
BoundOp BindNormGrad(const BindContext& context);

}  // namespace thimble::runtime
