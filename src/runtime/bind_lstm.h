// SPDX-License-Identifier: Apache-2.0
//
// Bindings of an LSTM's ops (ops/lstm_gates.h, ops/lstm_cell.h).
#pragma once

#include "runtime/bind.h"

namespace thimble::runtime {

void RunLstmGates(const BoundOp& op, const RunContext& run);
void RunLstmGatesGradWeight(const BoundOp& op, const RunContext& run);
void RunLstmCell(const BoundOp& op, const RunContext& run);
void RunLstmCellTrain(const BoundOp& op, const RunContext& run);
void RunLstmCellGrad(const BoundOp& op, const RunContext& run);

}  // namespace thimble::runtime
