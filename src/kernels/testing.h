// SPDX-License-Identifier: Apache-2.0
//
// What kernel tests share: running a body on every SIMD target and several
// thread counts, buffers with guard bytes at chosen misalignments, reproducible
// data, and error bounds computed from the data (never typed in).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/context.h"
#include "kernels/dot/dot_form.h"
#include "kernels/target.h"

namespace thimble::kernels::testing {

// Runs body() once for each supported target, or for the one that
// THIMBLE_TARGET names, and fails when there is none. Without dot products,
// which round what they multiply: dot/test_form.h is for these.
template <typename F>
void ForEachTarget(const F& body) {
  const Target before = ActiveTarget();  // stops at a name that is none
  const char* only = std::getenv("THIMBLE_TARGET");
  if (only != nullptr && *only == '\0') only = nullptr;
  ASSERT_FALSE(SupportedTargets().empty());
  for (Target target : SupportedTargets()) {
    if (only != nullptr && TargetName(target) != only) continue;
    ForceTarget(target);
    SCOPED_TRACE("target=" + std::string(TargetName(target)));
    ASSERT_EQ(ActiveTarget(), target);
    ForceDotForm(DotForm::kNone);
    body();
  }
  ForceDotForm(std::nullopt);
  ForceTarget(before);
}

// A buffer of n elements that starts `misalign` elements past a 64-byte
// boundary, between guard bytes that CheckGuards looks at.
template <typename T>
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t n, size_t misalign = 0)
      : n_(n), bytes_(n * sizeof(T) + 4 * kGuard, kSentinel) {
    auto address = reinterpret_cast<uintptr_t>(bytes_.data()) + kGuard;
    address = (address + 63) / 64 * 64 + misalign * sizeof(T);
    data_ = reinterpret_cast<T*>(address);
  }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return n_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  std::span<T> span() { return {data_, n_}; }

  // Fails when a byte before or after the elements was written.
  void CheckGuards(const char* name) const {
    const auto* begin = reinterpret_cast<const uint8_t*>(data_);
    const uint8_t* end = begin + n_ * sizeof(T);
    for (const uint8_t& byte : bytes_) {
      if (&byte >= begin && &byte < end) continue;
      if (byte == kSentinel) continue;
      ADD_FAILURE() << name << ": wrote outside of its " << n_
                    << " elements, at byte offset " << (&byte - begin);
      return;
    }
  }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr uint8_t kSentinel = 0xA5;
  size_t n_;
  std::vector<uint8_t> bytes_;
  T* data_;
};

// Reproducible values in [-1, 1), different for each seed; never exactly 0, so
// that kinks at 0 are not hit by accident.
inline float TestValue(uint64_t seed, uint64_t i) {
  uint64_t z = (seed + 1) * 0x9E3779B97F4A7C15ull + i * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  z ^= z >> 31;
  const auto bits = static_cast<int32_t>(z >> 40);  // 24 bits
  return (static_cast<float>(bits) + 0.5f) / 8388608.0f - 1.0f;
}

template <typename T>
void FillRandom(std::span<T> values, uint64_t seed) {
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<T>(TestValue(seed, i));
  }
}

// Rounding error that a sum of `terms` products may have when the sum of their
// magnitudes is `magnitude`: each of the terms is rounded at most once when
// multiplied and once when added, whatever the order.
inline double SumErrorBound(int64_t terms, double magnitude) {
  const double eps = std::numeric_limits<float>::epsilon() / 2;
  return eps * static_cast<double>(terms + 2) * magnitude +
         std::numeric_limits<float>::denorm_min();
}

// A pool, scratch of exactly the planned size between guards, and the context
// that a kernel gets.
class TestContext {
 public:
  explicit TestContext(int threads, const Workspace& workspace = {})
      : pool_(*ThreadPool::Create(threads)),
        scratch_(TotalBytes(workspace, threads)) {
    // What a kernel finds in its scratch is undefined: NaNs show who trusts it.
    std::memset(scratch_.data(), 0xFF, scratch_.size());
    context_.pool = pool_.get();
    context_.scratch = scratch_.data();
    context_.workspace = workspace;
  }
  ~TestContext() { scratch_.CheckGuards("scratch"); }
  const KernelContext& operator*() const { return context_; }

 private:
  std::unique_ptr<ThreadPool> pool_;
  GuardedBuffer<std::byte> scratch_;
  KernelContext context_;
};

}  // namespace thimble::kernels::testing
