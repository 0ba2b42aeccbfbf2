// SPDX-License-Identifier: Apache-2.0
//
// Storage types of tensors. Arithmetic is always f32 (see
// docs/architecture.md); a DType says only how elements are kept in the arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

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

// The type whose elements in memory are a T: float, int32_t or uint8_t.
template <typename T>
constexpr DType DTypeOf() {
  if constexpr (std::is_same_v<T, float>) {
    return DType::kF32;
  } else if constexpr (std::is_same_v<T, int32_t>) {
    return DType::kI32;
  } else {
    static_assert(std::is_same_v<T, uint8_t>);
    return DType::kU8;
  }
}

// Bytes that `elements` elements take, the last byte of packed bits included.
size_t BytesFor(DType dtype, int64_t elements);

}  // namespace thimble
