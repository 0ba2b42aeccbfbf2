// SPDX-License-Identifier: Apache-2.0
#include "kernels/target.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <hwy/detect_targets.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "base/check.h"
#include "kernels/dot/dot_form.h"

namespace thimble::kernels {
namespace {

struct TargetList {
  std::array<Target, kTargets> targets{};
  size_t count = 0;
};

#if defined(__x86_64__)
// Not every compiler knows the name for __builtin_cpu_supports.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
bool HasBf16DotProducts() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 &&
         (eax & (1u << 5)) != 0;
}
bool HasFastDotProducts() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(0, &eax, &ebx, &ecx, &edx) != 0 &&
         ebx != signature_INTEL_ebx;
}
#else
bool HasFastDotProducts() { return false; }
#endif

TargetList Detect() {
  TargetList list;
#if defined(__x86_64__)
  __builtin_cpu_init();
  // The sets that Highway's targets of the same names compile for.
  const bool sse4 = __builtin_cpu_supports("sse4.2") &&
                    __builtin_cpu_supports("aes") &&
                    __builtin_cpu_supports("pclmul");
  const bool avx2 = sse4 && __builtin_cpu_supports("avx2") &&
                    __builtin_cpu_supports("fma") && HasF16c() &&
                    __builtin_cpu_supports("bmi2");
  const bool avx3 = avx2 && __builtin_cpu_supports("avx512f") &&
                    __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") &&
                    __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
  if (sse4) list.targets[list.count++] = Target::kSse4;
  // A build may leave some out: with sanitizers, or for this CPU alone.
  if (avx2 && (HWY_TARGETS & HWY_AVX2) != 0)
    list.targets[list.count++] = Target::kAvx2;
  if (avx3 && (HWY_TARGETS & HWY_AVX3) != 0) {
    list.targets[list.count++] = Target::kAvx3;
    if (HasBf16DotProducts()) list.targets[list.count++] = Target::kAvx3Bf16;
  }
#elif defined(__aarch64__)
  list.targets[list.count++] = Target::kNeon;
#endif
  return list;
}

const TargetList& Detected() {
  static const TargetList kDetected = Detect();
  return kDetected;
}

// The target that THIMBLE_TARGET names, else the fastest; -1 where there is
// none.
int Choose() {
  const std::span<const Target> supported = SupportedTargets();
  if (supported.empty()) return -1;
  const char* wanted = std::getenv("THIMBLE_TARGET");
  if (wanted == nullptr || *wanted == '\0') {
    return static_cast<int>(DefaultTarget(supported, HasFastDotProducts()));
  }
  for (Target target : supported) {
    if (TargetName(target) == wanted) return static_cast<int>(target);
  }
  return -1;
}

std::atomic<int>& Active() {
  static std::atomic<int> active{Choose()};
  return active;
}

}  // namespace

std::string_view TargetName(Target target) {
  switch (target) {
    case Target::kSse4:
      return "sse4";
    case Target::kAvx2:
      return "avx2";
    case Target::kAvx3:
      return "avx512";
    case Target::kNeon:
      return "neon";
    case Target::kAvx3Bf16:
      return "avx512bf16";
  }
  return "?";
}

std::span<const Target> SupportedTargets() {
  return {Detected().targets.data(), Detected().count};
}

Target DefaultTarget(std::span<const Target> supported, bool has_fast_dots) {
  const size_t n = supported.size();
  const bool next_best =
      n > 1 && supported.back() == Target::kAvx3Bf16 && !has_fast_dots;
  return supported[next_best ? n - 2 : n - 1];
}

Status CheckCpu() {
  if (SupportedTargets().empty()) {
    return Status::Failed(
        "this CPU lacks SSE4.2, AES and PCLMUL, the least that the kernels "
        "need; use a machine from 2011 or later");
  }
  if (Active().load(std::memory_order_relaxed) < 0) {
    std::string names;
    for (Target target : SupportedTargets()) {
      names += names.empty() ? "" : ", ";
      names += TargetName(target);
    }
    return Status::Usage(
        "THIMBLE_TARGET names no target that this CPU runs; "
        "unset it or use one of: " +
        names);
  }
  return CheckDotForm();
}

Target ActiveTarget() {
  const int active = Active().load(std::memory_order_relaxed);
  TH_CHECK(active >= 0);  // CheckCpu was not called, or its answer ignored
  return static_cast<Target>(active);
}

void ForceTarget(Target target) {
  Active().store(static_cast<int>(target), std::memory_order_relaxed);
}

}  // namespace thimble::kernels
