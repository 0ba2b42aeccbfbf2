// SPDX-License-Identifier: Apache-2.0
//
// TargetClass: what a plan may assume of the CPU that it will run on. It says
// which arithmetic is cheap there, and so which of several types a budget
// takes. Plain values.
#pragma once

#include <cstdint>
#include <string_view>

#include "thimble/status.h"

namespace thimble {

enum class TargetClass : uint8_t {
  kGeneric,     // products cost the same in every type
  kAvx512Bf16,  // has products of bf16
};

// "generic", "avx512bf16"
std::string_view TargetClassName(TargetClass target);
Result<TargetClass> ParseTargetClass(std::string_view name);

// Of a SIMD target by its name, as TargetInUse (thimble/session.h) gives it.
TargetClass TargetClassOf(std::string_view target);

}  // namespace thimble
