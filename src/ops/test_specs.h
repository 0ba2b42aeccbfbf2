// SPDX-License-Identifier: Apache-2.0
// Values that tests of ops ask about.
#pragma once

#include "thimble/axis.h"
#include "thimble/graph.h"

namespace thimble::ops {

inline ValueSpec F32(const Shape& shape) {
  return {shape, DType::kF32, kBatchAxis};
}
inline ValueSpec U8(const Shape& shape) {
  return {shape, DType::kU8, kBatchAxis};
}
inline ValueSpec I32(const Shape& shape) {
  return {shape, DType::kI32, kBatchAxis};
}

}  // namespace thimble::ops
