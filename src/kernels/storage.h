// SPDX-License-Identifier: Apache-2.0
//
// The element types that tensors are stored in, and the step from a DType to
// one of them.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "thimble/dtype.h"

namespace thimble::kernels {

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

// The DType of an element type. Others have none.
template <typename T>
inline constexpr DType kDTypeOf = T::kNotAnElementType;
template <>
inline constexpr DType kDTypeOf<float> = DType::kF32;
template <>
inline constexpr DType kDTypeOf<F16> = DType::kF16;
template <>
inline constexpr DType kDTypeOf<BF16> = DType::kBF16;
template <>
inline constexpr DType kDTypeOf<uint8_t> = DType::kU8;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::kI32;

constexpr bool IsHalf(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}

// Calls f(T()) for the element type of `dtype`: float, F16 or BF16.
template <typename F>
inline void WithFloatType(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kF32:
      return f(float());
    case DType::kF16:
      return f(F16());
    case DType::kBF16:
      return f(BF16());
    default:
      TH_CHECK(false);  // not a floating-point type
  }
}

}  // namespace thimble::kernels
