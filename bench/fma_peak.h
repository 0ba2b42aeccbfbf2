// SPDX-License-Identifier: Apache-2.0
//
// The machine's own limit, to measure kernels against.
#pragma once

namespace thimble::bench {

// Fused multiply-adds on registers alone, on the active SIMD target, for about
// `seconds`: GFLOP/s of one thread.
double MeasureFmaPeak(double seconds);

}  // namespace thimble::bench
