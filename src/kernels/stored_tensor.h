// SPDX-License-Identifier: Apache-2.0
//
// Test only: a tensor of any storage type that ends where an unreadable page
// begins, with its values as doubles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/guard_page.h"
#include "kernels/storage_reference.h"
#include "kernels/tensor.h"
#include "kernels/testing.h"
#include "thimble/dtype.h"

namespace thimble::kernels::testing {

// n reproducible values in [low, high).
inline std::vector<float> Randoms(int64_t n, uint64_t seed, float low,
                                  float high) {
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = low + (high - low) * 0.5f * (TestValue(seed, i) + 1.0f);
  }
  return values;
}

class StoredTensor {
 public:
  StoredTensor(DType dtype, size_t n)
      : dtype_(dtype),
        n_(n),
        bytes_(BytesFor(dtype, static_cast<int64_t>(n))) {}

  // Random values in [-1, 1) (bytes: all of them), rounded to the type.
  StoredTensor(DType dtype, size_t n, uint64_t seed) : StoredTensor(dtype, n) {
    for (size_t i = 0; i < n; ++i) Set(i, TestValue(seed, i));
  }

  void* data() { return bytes_.data(); }
  Tensor tensor() { return {data(), dtype_}; }
  DType dtype() const { return dtype_; }
  size_t size() const { return n_; }

  void Set(size_t i, float value) {
    if (dtype_ == DType::kU8) {
      bytes_[i] = static_cast<uint8_t>((value + 1.0f) * 127.9f);
    } else if (dtype_ == DType::kF32) {
      std::memcpy(&bytes_[4 * i], &value, 4);
    } else {
      const uint16_t bits = Encode(value);
      std::memcpy(&bytes_[2 * i], &bits, 2);
    }
  }
  double Get(size_t i) {
    if (dtype_ == DType::kU8) return bytes_[i];
    if (dtype_ == DType::kF32) {
      float value = 0;
      std::memcpy(&value, &bytes_[4 * i], 4);
      return value;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, &bytes_[2 * i], 2);
    return reference::ValueOf(format(), bits);
  }
  std::vector<double> Wide() {
    std::vector<double> values(n_);
    for (size_t i = 0; i < n_; ++i) values[i] = Get(i);
    return values;
  }
  std::vector<float> Floats() {
    const std::vector<double> wide = Wide();
    return {wide.begin(), wide.end()};
  }
  std::vector<uint8_t> Bytes() {
    return {bytes_.data(), bytes_.data() + bytes_.span().size()};
  }
  // Takes over the bits of a tensor of the same type and size.
  void CopyFrom(StoredTensor& other) {
    std::memcpy(data(), other.data(), bytes_.span().size());
  }
  // What a value is after it was stored.
  double Rounded(float value) const {
    return dtype_ == DType::kF32 ? value : reference::Rounded(format(), value);
  }
  // Half of the distance between values around x: what storing may be off by.
  double RoundingBound(double x) const {
    if (dtype_ == DType::kF32) {
      return std::abs(x) * std::numeric_limits<float>::epsilon() / 2;
    }
    return reference::UlpOf(format(), x) / 2;
  }

 private:
  reference::Format format() const {
    return dtype_ == DType::kF16 ? reference::kF16Format
                                 : reference::kBF16Format;
  }
  // By search: values of one sign are in the order of their bits.
  uint16_t Encode(float value) const {
    const double want = std::abs(reference::Rounded(format(), value));
    uint16_t low = 0, high = 0x7FFF;
    while (low < high) {
      const auto middle = static_cast<uint16_t>((low + high) / 2);
      if (reference::ValueOf(format(), middle) < want) {
        low = static_cast<uint16_t>(middle + 1);
      } else {
        high = middle;
      }
    }
    return static_cast<uint16_t>(low | (std::signbit(value) ? 0x8000 : 0));
  }

  DType dtype_;
  size_t n_;
  GuardPageBuffer<uint8_t> bytes_;
};

inline constexpr DType kFloatTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

// Runs body(dtype) for every SIMD target and every float type.
template <typename F>
void ForEachFloatType(const F& body) {
  ForEachTarget([&] {
    for (DType dtype : kFloatTypes) {
      SCOPED_TRACE(DTypeName(dtype));
      body(dtype);
    }
  });
}

// A context of 1 to 3 threads without scratch, which all tests share.
inline const KernelContext& SharedContext(int threads) {
  static const TestContext contexts[] = {TestContext(1), TestContext(2),
                                         TestContext(3)};
  return *contexts[threads - 1];
}

// Calls run(out, context) with 1, 2 and 3 threads, each time with a new tensor
// that holds what `initial` does, and checks that the bytes never differ. Hands
// back what the first one became. For kernels without scratch.
template <typename F>
std::vector<double> OverThreads(StoredTensor& initial, const F& run) {
  std::vector<uint8_t> first;
  std::vector<double> result;
  for (int threads : {1, 2, 3}) {
    StoredTensor out(initial.dtype(), initial.size());
    out.CopyFrom(initial);
    run(out.tensor(), SharedContext(threads));
    if (threads == 1) {
      first = out.Bytes();
      result = out.Wide();
    }
    EXPECT_EQ(out.Bytes(), first) << "threads=" << threads;
  }
  return result;
}

}  // namespace thimble::kernels::testing
