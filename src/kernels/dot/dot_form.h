// SPDX-License-Identifier: Apache-2.0
//
// Dot products of bf16 pairs: whether convolutions and matrix products use
// them, and by which build of their source.
//
// A 32-bit lane of two operands holds a pair of bf16 each; their dot product is
//     fma(x0, w0, fma(x1, w1, sum))
// in f32, rounded to nearest even, with denormals flushed to zero (x0 is in the
// low half). One instruction of AVX512_BF16 does that; two fused multiply-adds
// do the same to the bit. So the form is native on the target avx512bf16, and
// THIMBLE_DOT=emulated in the environment asks for the emulated one on any CPU
// with AVX2: the same bits, slowly. Without either, tensors in bf16 are
// computed with in f32.
//
// Thread-safe, except ForceDotForm, which is for tests and benchmarks and must
// not run beside kernels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "thimble/status.h"

namespace thimble::kernels {

enum class DotForm : uint8_t { kNone, kNative, kEmulated };

// Whether this CPU can run it.
bool IsSupported(DotForm form);

DotForm ActiveDotForm();

// Nothing gives the choice back to target and environment.
// REQUIRES: IsSupported(*form).
void ForceDotForm(std::optional<DotForm> form);

// Fails where THIMBLE_DOT names no form, or one that this CPU cannot run.
Status CheckDotForm();

// The name of all that bits depend on: the active target's, and "+dot" where
// dot products are emulated.
std::string_view ArithmeticName();

// The builds of a source that is compiled for dot products: for the
// instruction, and for its emulation with vectors of 16 and of 8 lanes.
enum class DotBuild : uint8_t { kNative, kAvx512, kAvx2 };
inline constexpr size_t kDotBuilds = 3;

// REQUIRES: ActiveDotForm() is not kNone.
DotBuild ActiveDotBuild();

// One function pointer per build, in the order of DotBuild.
template <typename Function>
class DotTable {
 public:
  constexpr DotTable(Function native, Function avx512, Function avx2)
      : entries_{native, avx512, avx2} {}
  Function Get() const {
    return entries_[static_cast<size_t>(ActiveDotBuild())];
  }

 private:
  std::array<Function, kDotBuilds> entries_;
};

}  // namespace thimble::kernels

// THIMBLE_DOT_TABLE(Function): the table of its builds. Use in the namespace
// that holds dot_native and the others.
#define THIMBLE_DOT_TABLE(Function)                              \
  ::thimble::kernels::DotTable<decltype(&dot_native::Function)>( \
      &dot_native::Function, &dot_avx512::Function, &dot_avx2::Function)
