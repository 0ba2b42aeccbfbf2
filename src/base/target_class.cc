// SPDX-License-Identifier: Apache-2.0
#include "thimble/target_class.h"

#include <string>

namespace thimble {

std::string_view TargetClassName(TargetClass target) {
  return target == TargetClass::kAvx512Bf16 ? "avx512bf16" : "generic";
}

Result<TargetClass> ParseTargetClass(std::string_view name) {
  for (TargetClass target : {TargetClass::kGeneric, TargetClass::kAvx512Bf16}) {
    if (name == TargetClassName(target)) return target;
  }
  return Status::Usage("'" + std::string(name) +
                       "' is no class of CPUs; use generic or avx512bf16");
}

TargetClass TargetClassOf(std::string_view target) {
  return target == TargetClassName(TargetClass::kAvx512Bf16)
             ? TargetClass::kAvx512Bf16
             : TargetClass::kGeneric;
}

}  // namespace thimble
