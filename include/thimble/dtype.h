// SPDX-License-Identifier: Apache-2.0
//
// DType: how one element of a tensor is kept in memory. It says nothing about
// arithmetic, which is f32 whatever the storage. Pure functions, safe from
// every thread.
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

const char* DTypeName(DType dtype);  // "f32"

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

// Bytes that `elements` elements take. A last byte of bits that is not full
// counts as one.
size_t BytesFor(DType dtype, int64_t elements);

}  // namespace thimble
