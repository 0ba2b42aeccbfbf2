// SPDX-License-Identifier: Apache-2.0
//
// The convolution's way with sparse weights (kernels/conv/conv.h): what is kept
// is unpacked for some rows at a time into a thread's scratch, which does not
// depend on how much that is. Sums are those of the kept weights alone, in f32.
// Internal to the kernels; safe from every thread.
#pragma once

#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/conv/operand.h"

namespace thimble::kernels::sparse {

// A thread's scratch in floats, of a shape with blocks: the largest over ways
// and SIMD targets.
int64_t SumFloats(const Conv2dShape& shape, bool forward);
int64_t WeightFloats(const Conv2dShape& shape);

// The forward pass, or the gradient of the input.
void RunSum(const Conv2dShape& shape, bool forward, int64_t images,
            const Conv2dInput& input, const ConstTensor& weights,
            const conv::Sink& sink, const KernelContext& context);

// Stored and in pieces: kept blocks are shared out in the same way.
void RunWeightGrad(const Conv2dShape& shape, int64_t images,
                   const Conv2dInput& x, const ConstTensor& grad_y,
                   const Conv2dGradWeightTarget& grad_w,
                   const KernelContext& context);

}  // namespace thimble::kernels::sparse
