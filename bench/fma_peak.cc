// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fma_peak.cc"
#include "fma_peak.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "clock.h"
#include "kernels/dot/dot_form.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::bench {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// `rounds` rounds of 12 independent chains: more than latency times throughput
// of any core so far, and few enough for 16 registers.
double RunFmaChains(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  constexpr int kChains = 12;
  hn::Vec<decltype(d)> acc[kChains];
  for (int i = 0; i < kChains; ++i) {
    acc[i] = hn::Set(d, sink[0] + static_cast<float>(i));
  }
  const auto a = hn::Set(d, sink[1]);
  const auto b = hn::Set(d, sink[2]);
  for (int64_t r = 0; r < rounds; ++r) {
    for (int i = 0; i < kChains; ++i) acc[i] = hn::MulAdd(acc[i], a, b);
  }
  for (int i = 1; i < kChains; ++i) acc[0] = hn::Add(acc[0], acc[i]);
  sink[3] = hn::GetLane(hn::SumOfLanes(d, acc[0]));
  return 2.0 * kChains * static_cast<double>(hn::Lanes(d)) *
         static_cast<double>(rounds);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#if HWY_ARCH_X86
HWY_PUSH_ATTRIBUTES("avx512f,avx512bf16")
namespace thimble::bench {
namespace {

// The same with dot products: 16 lanes of two products each.
double RunDotChains(int64_t rounds, float* sink) {
  constexpr int kChains = 12;
  __m512 acc[kChains];
  for (int i = 0; i < kChains; ++i) {
    acc[i] = _mm512_set1_ps(sink[0] + static_cast<float>(i));
  }
  const auto a = reinterpret_cast<__m512bh>(_mm512_set1_ps(sink[1]));
  const auto b = reinterpret_cast<__m512bh>(_mm512_set1_ps(sink[2]));
  for (int64_t r = 0; r < rounds; ++r) {
    for (int i = 0; i < kChains; ++i) acc[i] = _mm512_dpbf16_ps(acc[i], a, b);
  }
  for (int i = 1; i < kChains; ++i) acc[0] = _mm512_add_ps(acc[0], acc[i]);
  sink[3] = acc[0][0];
  return 4.0 * kChains * 16 * static_cast<double>(rounds);
}

}  // namespace
}  // namespace thimble::bench
HWY_POP_ATTRIBUTES
#endif  // HWY_ARCH_X86

namespace thimble::bench {
namespace {

// What `run` reaches: GFLOP/s.
double Peak(double (*run)(int64_t, float*), double seconds) {
  float sink[4] = {1.0f, 0.5f, 0.25f, 0.0f};
  double best = 0.0;
  const double end = Now(true) + seconds;
  do {
    const double start = Now(true);
    const double flops = run(1'000'000, sink);
    best = std::max(best, flops / (Now(true) - start));
  } while (Now(true) < end);
  return best * 1e-9;
}

}  // namespace

double MeasureFmaPeak(double seconds) {
  return Peak(THIMBLE_DISPATCH(RunFmaChains).Get(), seconds);
}

double MeasureDotPeak(double seconds) {
#if HWY_ARCH_X86
  if (kernels::IsSupported(kernels::DotForm::kNative)) {
    return Peak(RunDotChains, seconds);
  }
#endif
  return 0.0;
}

}  // namespace thimble::bench
#endif  // HWY_ONCE
