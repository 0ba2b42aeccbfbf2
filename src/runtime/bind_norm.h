// SPDX-License-Identifier: Apache-2.0
//
// Bindings of batch normalisation (ops/batch_norm.h).
#pragma once

#include "runtime/bind.h"

namespace thimble::runtime {

BoundOp BindBatchNormTrain(const BindContext& context);
BoundOp BindBatchNormApply(const BindContext& context);
BoundOp BindBatchNormGrad(const BindContext& context);
BoundOp BindBatchNormTrack(const BindContext& context);

}  // namespace thimble::runtime
