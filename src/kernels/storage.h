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

// As WithFloatType, with uint8_t for images as well.
template <typename F>
inline void WithStorageType(DType dtype, const F& f) {
  if (dtype == DType::kU8) return f(uint8_t());
  WithFloatType(dtype, f);
}

}  // namespace thimble::kernels
