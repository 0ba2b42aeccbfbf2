// SPDX-License-Identifier: Apache-2.0
//
// The machine's own limit, to measure kernels against.
#pragma once

namespace thimble::bench {

// Fused multiply-adds on registers alone, on the active SIMD target, for about
// `seconds`: GFLOP/s of one thread.
double MeasureFmaPeak(double seconds);

// The same of dot products of bf16 pairs; 0 where the CPU has none.
double MeasureDotPeak(double seconds);

}  // namespace thimble::bench
