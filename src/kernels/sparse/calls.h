// SPDX-License-Identifier: Apache-2.0
//
// What does not change during a call of the kernels for sparse weights. Views;
// internal to the kernels.
#pragma once

#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/conv/operand.h"

namespace thimble::kernels::sparse {

// Of the forward pass, or of the gradient of the input.
struct SumCall {
  int64_t images;
  const Conv2dInput& input;
  const ConstTensor& weights;
  const conv::Sink& sink;
  int64_t pixels;  // of a plane of the output
};

// Where values of a gradient of sparse weights go.
struct ValueTarget {
  Tensor to;           // None with pieces
  ConstTensor addend;  // of the same storage, may be `to`; None: zeros
  const PieceSink* pieces;
};

struct WeightCall {
  int64_t images;
  const Conv2dInput& x;
  const ConstTensor& grad_y;
  const Pattern& pattern;
  ValueTarget target;
};

// Linear maps: images are blocks of rows, of `rows` in all.
struct LinearSumCall : SumCall {
  int64_t rows;
};
struct LinearWeightCall : WeightCall {
  int64_t rows;
};

}  // namespace thimble::kernels::sparse
