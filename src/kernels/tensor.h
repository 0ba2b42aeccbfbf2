// SPDX-License-Identifier: Apache-2.0
//
// A tensor as a kernel gets it: where its elements are and how they are stored.
// Neither has a default, so that a forgotten storage type does not compile. A
// kernel that takes one type only asks for it by name (f32(), u8(), …), which
// is checked. Bytes in blocks of 64 also have scales, one bf16 for each block;
// they are not taken for plain bytes. Values; they own nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "thimble/dtype.h"

namespace thimble::kernels {

// What a kernel reads.
class ConstTensor {
 public:
  ConstTensor(const void* data, DType dtype)
      : ConstTensor(data, dtype, nullptr) {}
  ConstTensor(const void* data, DType dtype, const uint16_t* scales)
      : data_(data), dtype_(dtype), scales_(scales) {}
  // A tensor that is not there, where a contract allows that.
  static ConstTensor None() { return {nullptr, DType::kF32}; }

  const void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  bool is_there() const { return data_ != nullptr; }
  bool is_in_blocks() const { return scales_ != nullptr; }
  const uint16_t* scales() const { return scales_; }

  const float* f32() const { return As<float>(DType::kF32); }
  const uint8_t* u8() const { return As<uint8_t>(DType::kU8); }
  const int32_t* i32() const { return As<int32_t>(DType::kI32); }
  const uint8_t* bits() const { return As<uint8_t>(DType::kBit); }

  // The same from an element on. REQUIRES: elements are whole bytes; in blocks,
  // the element begins one.
  ConstTensor From(int64_t element) const {
    if (!is_there()) return *this;
    TH_CHECK(!is_in_blocks() || element % kBlock == 0);
    return {static_cast<const std::byte*>(data_) + BytesFor(dtype_, element),
            dtype_, is_in_blocks() ? scales_ + element / kBlock : nullptr};
  }

  static constexpr int64_t kBlock = 64;  // elements that share a scale

 private:
  template <typename T>
  const T* As(DType dtype) const {
    TH_CHECK(!is_there() || (dtype_ == dtype && !is_in_blocks()));
    return static_cast<const T*>(data_);
  }

  const void* data_;
  DType dtype_;
  const uint16_t* scales_;
};

// What a kernel writes, or changes where it lies.
class Tensor {
 public:
  Tensor(void* data, DType dtype) : Tensor(data, dtype, nullptr) {}
  Tensor(void* data, DType dtype, uint16_t* scales)
      : data_(data), dtype_(dtype), scales_(scales) {}
  static Tensor None() { return {nullptr, DType::kF32}; }
  operator ConstTensor() const {  // NOLINT: implicit
    return {data_, dtype_, scales_};
  }

  void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  bool is_there() const { return data_ != nullptr; }
  bool is_in_blocks() const { return scales_ != nullptr; }
  uint16_t* scales() const { return scales_; }

  float* f32() const { return As<float>(DType::kF32); }
  uint8_t* u8() const { return As<uint8_t>(DType::kU8); }
  int32_t* i32() const { return As<int32_t>(DType::kI32); }
  uint8_t* bits() const { return As<uint8_t>(DType::kBit); }

  Tensor From(int64_t element) const {
    if (!is_there()) return *this;
    constexpr int64_t kBlock = ConstTensor::kBlock;
    TH_CHECK(!is_in_blocks() || element % kBlock == 0);
    return {static_cast<std::byte*>(data_) + BytesFor(dtype_, element), dtype_,
            is_in_blocks() ? scales_ + element / kBlock : nullptr};
  }

 private:
  template <typename T>
  T* As(DType dtype) const {
    TH_CHECK(!is_there() || (dtype_ == dtype && !is_in_blocks()));
    return static_cast<T*>(data_);
  }

  void* data_;
  DType dtype_;
  uint16_t* scales_;
};

// Plain f32, for tests and for vectors that are never stored otherwise.
inline ConstTensor F32(const float* data) { return {data, DType::kF32}; }
inline Tensor F32(float* data) { return {data, DType::kF32}; }

}  // namespace thimble::kernels
