// SPDX-License-Identifier: Apache-2.0
//
// Bindings of batch normalisation (ops/batch_norm.h).
#pragma once

#include "runtime/bind.h"

namespace thimble::runtime {

void RunBatchNormTrain(const BoundOp& op, const RunContext& run);
void RunBatchNormApply(const BoundOp& op, const RunContext& run);
void RunBatchNormGrad(const BoundOp& op, const RunContext& run);
void RunBatchNormTrack(const BoundOp& op, const RunContext& run);

}  // namespace thimble::runtime
