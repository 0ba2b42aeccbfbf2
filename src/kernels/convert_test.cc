// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert_test.cc"
#include <gtest/gtest.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/convert-inl.h"
#include "kernels/storage_reference.h"
#include "kernels/target.h"
#include "kernels/testing.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Counts are no multiple of a vector, so that the ends are covered too.
template <typename T>
void Widen(const T* from, size_t n, float* to) {
  const hn::ScalableTag<float> d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    hn::StoreU(LoadAs(d, from + i), d, to + i);
  }
  if (i < n) StoreFirst(LoadFirstAs(d, from + i, n - i), d, to + i, n - i);
}

template <typename T>
void NarrowTo(const float* from, size_t n, T* to) {
  const hn::ScalableTag<float> d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    StoreAs(hn::LoadU(d, from + i), d, to + i);
  }
  if (i < n) StoreFirstAs(LoadFirst(d, from + i, n - i), d, to + i, n - i);
}

// In two steps: rounded, then stored as what it is. n is whole vectors.
template <typename T>
void NarrowInSteps(const float* from, size_t n, T* to) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    StoreExact(RoundTo(d, T(), hn::LoadU(d, from + i)), d, to + i);
  }
}
void StepsF16(const float* from, size_t n, F16* to) {
  NarrowInSteps(from, n, to);
}
void StepsBF16(const float* from, size_t n, BF16* to) {
  NarrowInSteps(from, n, to);
}

void WidenF16(const F16* from, size_t n, float* to) { Widen(from, n, to); }
void WidenBF16(const BF16* from, size_t n, float* to) { Widen(from, n, to); }
void WidenU8(const uint8_t* from, size_t n, float* to) { Widen(from, n, to); }
void NarrowF16(const float* from, size_t n, F16* to) { NarrowTo(from, n, to); }
void NarrowBF16(const float* from, size_t n, BF16* to) {
  NarrowTo(from, n, to);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {
namespace {

using reference::Format;
using testing::ForEachTarget;

bool SameNumber(double got, double want) {
  if (std::isnan(want)) return std::isnan(got);
  return got == want && std::signbit(got) == std::signbit(want);
}

float FromBits32(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

template <typename T>
void CheckEveryPattern(Format format, void (*widen)(const T*, size_t, float*)) {
  std::vector<T> all(65536 + 3);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].bits = static_cast<uint16_t>(i);
  }
  std::vector<float> wide(all.size());
  widen(all.data(), all.size(), wide.data());
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(SameNumber(wide[i], reference::ValueOf(format, all[i].bits)))
        << "bits " << all[i].bits << " gave " << wide[i];
  }
}

TEST(Convert, EveryHalfIsReadExactly) {
  ForEachTarget([] {
    CheckEveryPattern(reference::kF16Format, THIMBLE_DISPATCH(WidenF16).Get());
    CheckEveryPattern(reference::kBF16Format,
                      THIMBLE_DISPATCH(WidenBF16).Get());
  });
}

TEST(Convert, EveryByteIsReadExactly) {
  ForEachTarget([] {
    std::vector<uint8_t> bytes(256 + 5);
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<uint8_t>(i);
    }
    std::vector<float> wide(bytes.size());
    THIMBLE_DISPATCH(WidenU8).Get()(bytes.data(), bytes.size(), wide.data());
    for (size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(wide[i], bytes[i]);
  });
}

// All values of the 16-bit type, the middles between neighbours, what lies just
// beside those, and floats of every exponent.
std::vector<float> Samples(Format format) {
  std::vector<float> samples;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double value =
        reference::ValueOf(format, static_cast<uint16_t>(bits));
    samples.push_back(static_cast<float>(value));
    if (std::isnan(value) || std::isinf(value)) continue;
    const auto middle =
        static_cast<float>(value + reference::UlpOf(format, value) / 2);
    samples.push_back(middle);
    samples.push_back(std::nextafter(middle, 0.0f));
    samples.push_back(std::nextafter(middle, INFINITY));
  }
  for (uint32_t exponent = 0; exponent < 512; ++exponent) {
    for (uint32_t i = 0; i < 4096; ++i) {
      const uint32_t fraction = (i * 0x9E3779B1u) >> 9;
      samples.push_back(FromBits32((exponent << 23) | fraction));
    }
  }
  samples.push_back(FromBits32(0x7F800001u));  // a NaN that truncates to inf
  samples.push_back(FromBits32(0xFFFFFFFFu));
  return samples;
}

template <typename T>
void CheckRounding(Format format, void (*narrow)(const float*, size_t, T*)) {
  const std::vector<float> samples = Samples(format);
  std::vector<T> narrowed(samples.size());
  narrow(samples.data(), samples.size(), narrowed.data());
  for (size_t i = 0; i < samples.size(); ++i) {
    const double want =
        reference::Rounded(format, static_cast<double>(samples[i]));
    const double got = reference::ValueOf(format, narrowed[i].bits);
    ASSERT_TRUE(SameNumber(got, want))
        << samples[i] << " became " << got << ", not " << want;
  }
}

TEST(Convert, RoundsToNearestEven) {
  ForEachTarget([] {
    CheckRounding(reference::kF16Format, THIMBLE_DISPATCH(NarrowF16).Get());
    CheckRounding(reference::kBF16Format, THIMBLE_DISPATCH(NarrowBF16).Get());
  });
}

// Both ways to the bit, NaNs included.
template <typename T>
void CheckSteps(Format format, void (*narrow)(const float*, size_t, T*),
                void (*steps)(const float*, size_t, T*)) {
  std::vector<float> samples = Samples(format);
  samples.resize((samples.size() + 63) / 64 * 64);
  std::vector<T> want(samples.size()), got(samples.size());
  narrow(samples.data(), samples.size(), want.data());
  steps(samples.data(), samples.size(), got.data());
  for (size_t i = 0; i < samples.size(); ++i) {
    ASSERT_EQ(got[i].bits, want[i].bits) << samples[i];
  }
}

TEST(Convert, RoundedValuesAreStoredAsTheyAre) {
  ForEachTarget([] {
    CheckSteps(reference::kF16Format, THIMBLE_DISPATCH(NarrowF16).Get(),
               THIMBLE_DISPATCH(StepsF16).Get());
    CheckSteps(reference::kBF16Format, THIMBLE_DISPATCH(NarrowBF16).Get(),
               THIMBLE_DISPATCH(StepsBF16).Get());
  });
}

}  // namespace
}  // namespace thimble::kernels
#endif  // HWY_ONCE
