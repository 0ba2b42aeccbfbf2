// SPDX-License-Identifier: Apache-2.0
//
// Which SIMD targets this binary holds, which of them the CPU can run, and
// which one is in use. Every kernel family keeps a DispatchTable with one entry
// per target; the entry is looked up once per call, outside of all loops.
//
// Chosen at first use: the fastest supported one, or THIMBLE_TARGET=avx2 (say)
// from the environment. Thread-safe, except ForceTarget, which is for tests and
// benchmarks and must not run beside kernels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "thimble/status.h"

namespace thimble::kernels {

// Worst first, so that the best supported one is the last.
enum class Target : uint8_t { kSse4, kAvx2, kAvx3, kNeon, kAvx3Bf16 };
inline constexpr size_t kTargets = 5;

// "sse4", "avx2", "avx512", "neon", "avx512bf16"
std::string_view TargetName(Target target);

// The targets that are compiled in and that this CPU runs, worst first. Empty
// on a CPU older than the baseline; CheckCpu says so in words.
std::span<const Target> SupportedTargets();

// The one of `supported`, which is not empty, that is used where nobody names
// one: the last; but avx512bf16 only where dot products are fast, which they
// are not on Intel's CPUs: these take two cycles for one, and multiply f32
// twice as fast.
Target DefaultTarget(std::span<const Target> supported, bool has_fast_dots);

// Fails where no target runs, or where THIMBLE_TARGET names none that does, or
// THIMBLE_DOT no form of dot products (dot/dot_form.h). Programs call it before
// the first kernel.
Status CheckCpu();

Target ActiveTarget();

// REQUIRES: target is in SupportedTargets().
void ForceTarget(Target target);

// One function pointer per target; null where it is not compiled in. What
// avx512bf16 has more than avx512, dot products, is no entry but a form
// (dot/dot_form.h).
template <typename Function>
class DispatchTable {
 public:
  constexpr DispatchTable(Function sse4, Function avx2, Function avx3,
                          Function neon)
      : entries_{sse4, avx2, avx3, neon, avx3} {}
  Function Get() const { return entries_[static_cast<size_t>(ActiveTarget())]; }

 private:
  std::array<Function, kTargets> entries_;
};

}  // namespace thimble::kernels

// THIMBLE_DISPATCH(Function): the table of the per-target builds of
// HWY_NAMESPACE::Function. Use inside `#if HWY_ONCE`, in the namespace that
// holds HWY_NAMESPACE, after <hwy/highway.h>.
#define THIMBLE_DISPATCH(Function)                                             \
  ::thimble::kernels::DispatchTable<decltype(&HWY_STATIC_DISPATCH(Function))>( \
      HWY_CHOOSE_SSE4(Function), HWY_CHOOSE_AVX2(Function),                    \
      HWY_CHOOSE_AVX3(Function), HWY_CHOOSE_NEON(Function))
