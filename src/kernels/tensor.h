// SPDX-License-Identifier: Apache-2.0
//
// A tensor as a kernel gets it: where its elements are and how they are stored.
// Neither has a default, so that a forgotten storage type does not compile. A
// kernel asks for the elements in the type that it reads them as: by name
// (f32(), u8(), …) where it takes one type only, by As<T>() behind
// WithFloatType or WithStorageType. All of them are checked; data() is for what
// looks at no element. Bytes in blocks of 64 also have scales, one bf16 for
// each block; they are not taken for plain bytes. A sparse tensor also has a
// pattern (thimble/sparsity.h), and is not taken for a dense one: values() is
// what it keeps, as a tensor of its own. Values; they own nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "kernels/storage.h"
#include "thimble/dtype.h"
#include "thimble/sparsity.h"

namespace thimble::kernels {

// What a kernel reads.
class ConstTensor {
 public:
  ConstTensor(const void* data, DType dtype)
      : ConstTensor(data, dtype, nullptr) {}
  ConstTensor(const void* data, DType dtype, const uint16_t* scales,
              const Pattern* pattern = nullptr)
      : data_(data), dtype_(dtype), scales_(scales), pattern_(pattern) {}
  // A tensor that is not there, where a contract allows that.
  static ConstTensor None() { return {nullptr, DType::kF32}; }

  const void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  bool is_there() const { return data_ != nullptr; }
  bool is_in_blocks() const { return scales_ != nullptr; }
  const uint16_t* scales() const { return scales_; }
  bool is_sparse() const { return pattern_ != nullptr; }
  // Null where it is dense.
  const Pattern* pattern() const { return pattern_; }
  // What is stored of it, one element after the other: itself, where it is
  // dense.
  ConstTensor values() const { return {data_, dtype_, scales_}; }

  // Null for a tensor that is not there. REQUIRES: it is stored so.
  template <typename T>
  const T* As() const {
    return StoredAs<T>(kDTypeOf<T>);
  }
  const float* f32() const { return As<float>(); }
  const uint8_t* u8() const { return As<uint8_t>(); }
  const int32_t* i32() const { return As<int32_t>(); }
  const uint8_t* bits() const { return StoredAs<uint8_t>(DType::kBit); }
  // The bits of f16 or bf16. REQUIRES: `dtype` is one of them.
  const uint16_t* halves(DType dtype) const {
    TH_CHECK(IsHalf(dtype));
    return StoredAs<uint16_t>(dtype);
  }
  // The bytes of a tensor in blocks, each times its scale.
  const uint8_t* codes() const {
    TH_CHECK(dtype_ == DType::kU8 && is_in_blocks() && !is_sparse());
    return static_cast<const uint8_t*>(data_);
  }

  // The same from an element on. REQUIRES: elements are whole bytes; in blocks,
  // the element begins one.
  ConstTensor From(int64_t element) const {
    if (!is_there()) return *this;
    TH_CHECK(!is_sparse());
    TH_CHECK(!is_in_blocks() || element % kBlock == 0);
    return {static_cast<const std::byte*>(data_) + BytesFor(dtype_, element),
            dtype_, is_in_blocks() ? scales_ + element / kBlock : nullptr};
  }

  static constexpr int64_t kBlock = 64;  // elements that share a scale

 private:
  template <typename T>
  const T* StoredAs(DType dtype) const {
    TH_CHECK(!is_there() ||
             (dtype_ == dtype && !is_in_blocks() && !is_sparse()));
    return static_cast<const T*>(data_);
  }

  const void* data_;
  DType dtype_;
  const uint16_t* scales_;
  const Pattern* pattern_ = nullptr;
};

// What a kernel writes, or changes where it lies.
class Tensor {
 public:
  Tensor(void* data, DType dtype) : Tensor(data, dtype, nullptr) {}
  Tensor(void* data, DType dtype, uint16_t* scales,
         const Pattern* pattern = nullptr)
      : data_(data), dtype_(dtype), scales_(scales), pattern_(pattern) {}
  static Tensor None() { return {nullptr, DType::kF32}; }
  operator ConstTensor() const {  // NOLINT: implicit
    return {data_, dtype_, scales_, pattern_};
  }

  void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  bool is_there() const { return data_ != nullptr; }
  bool is_in_blocks() const { return scales_ != nullptr; }
  uint16_t* scales() const { return scales_; }
  bool is_sparse() const { return pattern_ != nullptr; }
  const Pattern* pattern() const { return pattern_; }
  Tensor values() const { return {data_, dtype_, scales_}; }

  // As ConstTensor's.
  template <typename T>
  T* As() const {
    return StoredAs<T>(kDTypeOf<T>);
  }
  float* f32() const { return As<float>(); }
  uint8_t* u8() const { return As<uint8_t>(); }
  int32_t* i32() const { return As<int32_t>(); }
  uint8_t* bits() const { return StoredAs<uint8_t>(DType::kBit); }
  uint16_t* halves(DType dtype) const {
    TH_CHECK(IsHalf(dtype));
    return StoredAs<uint16_t>(dtype);
  }
  uint8_t* codes() const {
    TH_CHECK(dtype_ == DType::kU8 && is_in_blocks() && !is_sparse());
    return static_cast<uint8_t*>(data_);
  }

  Tensor From(int64_t element) const {
    if (!is_there()) return *this;
    TH_CHECK(!is_sparse());
    constexpr int64_t kBlock = ConstTensor::kBlock;
    TH_CHECK(!is_in_blocks() || element % kBlock == 0);
    return {static_cast<std::byte*>(data_) + BytesFor(dtype_, element), dtype_,
            is_in_blocks() ? scales_ + element / kBlock : nullptr};
  }

 private:
  template <typename T>
  T* StoredAs(DType dtype) const {
    TH_CHECK(!is_there() ||
             (dtype_ == dtype && !is_in_blocks() && !is_sparse()));
    return static_cast<T*>(data_);
  }

  void* data_;
  DType dtype_;
  uint16_t* scales_;
  const Pattern* pattern_ = nullptr;
};

// Plain f32, for tests and for vectors that are never stored otherwise.
inline ConstTensor F32(const float* data) { return {data, DType::kF32}; }
inline Tensor F32(float* data) { return {data, DType::kF32}; }

// Calls f(T()) for the element type of the tensor: a float type, or uint8_t for
// images. REQUIRES: it is not in blocks, whose bytes are no values by
// themselves.
template <typename F>
inline void WithStorageType(const ConstTensor& tensor, const F& f) {
  TH_CHECK(!tensor.is_in_blocks());
  if (tensor.dtype() == DType::kU8) return f(uint8_t());
  WithFloatType(tensor.dtype(), f);
}

}  // namespace thimble::kernels
