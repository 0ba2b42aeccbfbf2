// SPDX-License-Identifier: Apache-2.0
//
// Numbers that the papers print: the only ones in this module that are not
// computed.
//
// Sohoni: Sohoni et al., "Low-Memory Neural Network Training: A Technical
// Report", arXiv:1904.10631. Its MB are 10^6 bytes.
// Chen: Chen et al., "Training Deep Nets with Sublinear Memory Cost",
// arXiv:1604.06174. Its GB are taken as 10^9 bytes.
#pragma once

#include <cstdint>

namespace thimble::reproduce {

// Sohoni, table 3, first row: figure 1(a) is a chart of the same setting.
inline constexpr double kSohoniWrnTotalMb = 404.8;
// Sohoni, caption of table 4, which names figure 1(b).
inline constexpr double kSohoniDynamicConvTotalMb = 2896;

// Sohoni, section 3.4, on residual-2*: activations 5.8 times smaller for 30%
// more FLOPs. Figure 5 itself has no digits.
inline constexpr double kSohoniResidual2Reduction = 5.8;
inline constexpr double kSohoniResidual2Flops = 1.30;

// Sohoni, table 3.
struct SohoniTable3Row {
  bool is_f16;
  const char* recompute;
  int nonzero_percent;
  int microbatch;
  double total_mb;
  double reduction;
};
inline constexpr SohoniTable3Row kSohoniTable3[] = {
    {false, "none", 100, 100, kSohoniWrnTotalMb, 1.0},
    {true, "residual-2*", 100, 100, 42.6, 9.5},
    {true, "residual-2*", 100, 10, 12.2, 33.2},
    {true, "residual-2*", 30, 10, 6.7, 60.7},
    {true, "residual-2*", 20, 10, 5.6, 72.2},
    {true, "residual-2*", 20, 4, 3.6, 113.0},
    {true, "residual-2*", 10, 4, 2.5, 160.8},
};

// Chen, abstract: a residual network of 1,000 layers, from 48 GB to 7 GB.
inline constexpr int64_t kChenResnetDepth = 1000;
inline constexpr double kChenResnetLinearGb = 48;
inline constexpr double kChenResnetSublinearGb = 7;

// Chen, section 5, on LSTMs: more than 4 times below the optimised linear
// plan. The steps are those of the authors' code (dmlc/mxnet-memonger).
inline constexpr int64_t kChenLstmSteps = 1000;
inline constexpr double kChenLstmReduction = 4;

}  // namespace thimble::reproduce
