// SPDX-License-Identifier: Apache-2.0
//
// DType: how one element of a tensor is kept in memory. It says nothing about
// arithmetic, which is f32 whatever the storage. Pure functions, safe from
// every thread.
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

const char* DTypeName(DType dtype);  // "f32"

// Bytes that `elements` elements take. A last byte of bits that is not full
// counts as one.
size_t BytesFor(DType dtype, int64_t elements);

}  // namespace thimble
