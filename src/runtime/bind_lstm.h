// SPDX-License-Identifier: Apache-2.0
//
// Bindings of an LSTM's ops (ops/lstm_gates.h, ops/lstm_cell.h).
#pragma once

#include "runtime/bind.h"

namespace thimble::runtime {

BoundOp BindLstmGates(const BindContext& context);
BoundOp BindLstmGatesGradWeight(const BindContext& context);
BoundOp BindLstmCell(const BindContext& context);
BoundOp BindLstmCellTrain(const BindContext& context);
BoundOp BindLstmCellGrad(const BindContext& context);

}  // namespace thimble::runtime
