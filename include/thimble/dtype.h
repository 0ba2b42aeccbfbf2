// SPDX-License-Identifier: Apache-2.0
//
// Storage types of tensors. Arithmetic is always f32 (see
// docs/architecture.md); a DType says only how elements are kept in the arena.
#pragma once

#include <cstddef>
#include <cstdint>

namespace thimble {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kU8,
  kI32,
  kBit,  // one bit per element, packed, element i in bit i%8 of byte i/8
};

const char* DTypeName(DType dtype);

// Bytes that `elements` elements take, the last byte of packed bits included.
size_t BytesFor(DType dtype, int64_t elements);

}  // namespace thimble
