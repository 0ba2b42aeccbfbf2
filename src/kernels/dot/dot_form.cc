// SPDX-License-Identifier: Apache-2.0
#include "kernels/dot/dot_form.h"

#include <atomic>
#include <cstdlib>
#include <string>

#include "base/check.h"
#include "kernels/target.h"

namespace thimble::kernels {
namespace {

constexpr int kUnset = -1;
std::atomic<int> forced_form{kUnset};

// Of emulation. Not asked of SupportedTargets, which a build with sanitizers
// may shorten.
bool CpuHasFma() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

bool CpuHas(Target wanted) {
  for (const Target target : SupportedTargets()) {
    if (target == wanted) return true;
  }
  return false;
}

const char* WantedForm() {
  const char* wanted = std::getenv("THIMBLE_DOT");
  return wanted == nullptr ? "" : wanted;
}

// THIMBLE_DOT asks for emulation.
bool IsEmulationWanted() {
  static const bool kWanted = std::string_view(WantedForm()) == "emulated" &&
                              IsSupported(DotForm::kEmulated);
  return kWanted;
}

}  // namespace

bool IsSupported(DotForm form) {
  switch (form) {
    case DotForm::kNone:
      return true;
    case DotForm::kNative:
      return CpuHas(Target::kAvx3Bf16);
    case DotForm::kEmulated:
      return CpuHasFma();
  }
  return false;
}

DotForm ActiveDotForm() {
  const int forced = forced_form.load(std::memory_order_relaxed);
  if (forced != kUnset) return static_cast<DotForm>(forced);
  if (IsEmulationWanted()) return DotForm::kEmulated;
  return ActiveTarget() == Target::kAvx3Bf16 ? DotForm::kNative
                                             : DotForm::kNone;
}

void ForceDotForm(std::optional<DotForm> form) {
  TH_CHECK(!form.has_value() || IsSupported(*form));
  forced_form.store(form.has_value() ? static_cast<int>(*form) : kUnset,
                    std::memory_order_relaxed);
}

Status CheckDotForm() {
  const std::string_view wanted = WantedForm();
  if (wanted.empty()) return Status::Ok();
  if (wanted != "emulated") {
    return Status::Usage(
        "THIMBLE_DOT names no form of dot products; unset it or use: emulated");
  }
  if (!IsSupported(DotForm::kEmulated)) {
    return Status::Usage(
        "THIMBLE_DOT=emulated needs a CPU with AVX2 and FMA; unset it");
  }
  return Status::Ok();
}

std::string_view ArithmeticName() {
  const Target target = ActiveTarget();
  if (ActiveDotForm() != DotForm::kEmulated) return TargetName(target);
  switch (target) {
    case Target::kSse4:
      return "sse4+dot";
    case Target::kAvx2:
      return "avx2+dot";
    case Target::kAvx3:
    case Target::kAvx3Bf16:
      return "avx512+dot";
    case Target::kNeon:
      break;  // has no dot products
  }
  return TargetName(target);
}

DotBuild ActiveDotBuild() {
  const DotForm form = ActiveDotForm();
  TH_CHECK(form != DotForm::kNone);
  if (form == DotForm::kNative) return DotBuild::kNative;
  const Target target = ActiveTarget();
  return target == Target::kAvx3 || target == Target::kAvx3Bf16
             ? DotBuild::kAvx512
             : DotBuild::kAvx2;
}

}  // namespace thimble::kernels
