// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/stochastic_test.cc"
#include <gtest/gtest.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "base/rng.h"
#include "kernels/guard_page.h"
#include "kernels/stochastic-inl.h"
#include "kernels/storage_reference.h"
#include "kernels/target.h"
#include "kernels/testing.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

void RowF16(int64_t first, int64_t n, const RandomAddress& random,
            const float* from, F16* to) {
  StoreRowByChance(first, n, random, from, to);
}
void RowBF16(int64_t first, int64_t n, const RandomAddress& random,
             const float* from, BF16* to) {
  StoreRowByChance(first, n, random, from, to);
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

constexpr RandomAddress kRandom = {0x123456789ABCull, 7, 0x80000005u};

// The random bits of an element, by the rule of kernels/random.h.
uint32_t BitsOf(const RandomAddress& random, uint64_t element) {
  const uint64_t group = element / kRandomGroup, at = element % kRandomGroup;
  const RandomStream stream(random.seed, random.step, random.stream);
  const auto block =
      static_cast<uint32_t>(group * kRandomBlocks + at % kRandomBlocks);
  return stream.Block(block)[at / kRandomBlocks];
}

bool SameNumber(double got, double want) {
  if (std::isnan(want)) return std::isnan(got);
  return got == want && std::signbit(got) == std::signbit(want);
}

// Values of the type and what lies between them, of both signs: subnormals, the
// largest ones, infinities and NaNs among them.
std::vector<float> Samples(Format format) {
  std::vector<float> samples;
  for (uint32_t bits = 0; bits < 65536; bits += 7) {
    const double value =
        reference::ValueOf(format, static_cast<uint16_t>(bits));
    samples.push_back(static_cast<float>(value));
    if (!std::isfinite(value)) continue;
    const double ulp = reference::UlpOf(format, value);
    for (const double share : {0x1p-13, 0.3, 0.5, 1 - 0x1p-13}) {
      samples.push_back(
          static_cast<float>(value + std::copysign(share * ulp, value)));
    }
  }
  for (uint32_t i = 0; i < 65536; ++i) {
    samples.push_back(std::bit_cast<float>(i * 0x9E3779B1u));
  }
  for (const float x : {65504.0f, 65519.0f, 65520.0f, 65535.9f, 65536.0f,
                        3.4e38f, 1e-45f, 0x1p-25f, 0x1p-24f, INFINITY, NAN}) {
    samples.push_back(x);
    samples.push_back(-x);
  }
  samples.push_back(std::bit_cast<float>(0x7F800001u));
  samples.push_back(std::bit_cast<float>(0xFFFFFFFFu));
  return samples;
}

template <typename T>
using Row = void (*)(int64_t, int64_t, const RandomAddress&, const float*, T*);

template <typename T>
void ExpectTheDefinition(Format format, Row<T> row) {
  const std::vector<float> from = Samples(format);
  std::vector<T> to(from.size());
  constexpr int64_t kFirst = 3 * kRandomGroup;
  row(kFirst, static_cast<int64_t>(from.size()), kRandom, from.data(),
      to.data());
  for (size_t i = 0; i < from.size(); ++i) {
    const double want = reference::RoundedByChance(format, from[i],
                                                   BitsOf(kRandom, kFirst + i));
    const double got = reference::ValueOf(format, to[i].bits);
    ASSERT_TRUE(SameNumber(got, want))
        << from[i] << " became " << got << ", not " << want;
  }
}

TEST(Stochastic, RoundsByTheBitsOfTheElementOnEveryTarget) {
  ForEachTarget([] {
    ExpectTheDefinition(reference::kF16Format, THIMBLE_DISPATCH(RowF16).Get());
    ExpectTheDefinition(reference::kBF16Format,
                        THIMBLE_DISPATCH(RowBF16).Get());
  });
}

template <typename T>
void ExpectExactStay(Format format, Row<T> row) {
  std::vector<float> from(65536);
  for (size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<float>(
        reference::ValueOf(format, static_cast<uint16_t>(i)));
  }
  for (uint32_t stream = 0; stream < 3; ++stream) {
    std::vector<T> to(from.size());
    row(0, 65536, {1, 2, stream}, from.data(), to.data());
    for (size_t i = 0; i < from.size(); ++i) {
      if (std::isnan(from[i])) continue;
      ASSERT_EQ(to[i].bits, i);
    }
  }
}

TEST(Stochastic, EveryHalfStaysAsItIs) {
  ForEachTarget([] {
    ExpectExactStay(reference::kF16Format, THIMBLE_DISPATCH(RowF16).Get());
    ExpectExactStay(reference::kBF16Format, THIMBLE_DISPATCH(RowBF16).Get());
  });
}

// Each value is rounded many times. The error of all means together, in units
// of its own standard deviation, is a standard normal number: beyond 4 it would
// be met once in 16,000 times. A value alone is held to 6.
template <typename T>
void ExpectUnbiased(Format format, Row<T> row, float least, float largest) {
  constexpr int64_t kDraws = 16384;
  std::vector<float> from(kDraws);
  std::vector<T> to(kDraws);
  double errors = 0, variances = 0;
  for (uint64_t k = 0; k < 64; ++k) {
    const double u = 0.5 * (testing::TestValue(5, k) + 1.0);
    const auto x = static_cast<float>(
        std::exp(std::log(least) + u * std::log(largest / least)) *
        (k % 2 == 0 ? 1 : -1));
    std::fill(from.begin(), from.end(), x);
    row(0, kDraws, kRandom.Next(static_cast<uint32_t>(k)), from.data(),
        to.data());
    double sum = 0;
    std::set<uint16_t> seen;
    for (const T& value : to) {
      sum += reference::ValueOf(format, value.bits) - x;
      seen.insert(value.bits);
    }
    ASSERT_LE(seen.size(), 2u);
    const double ulp = reference::UlpOf(format, x);
    const double steps = std::abs(static_cast<double>(x)) / ulp;
    const double share = steps - std::floor(steps);
    const double deviation = std::sqrt(share * (1 - share) / kDraws);
    EXPECT_LE(std::abs(sum / kDraws / ulp), 6 * deviation + 1e-12) << x;
    errors += sum / kDraws / ulp;
    variances += deviation * deviation;
  }
  ASSERT_GT(variances, 0);
  EXPECT_LE(std::abs(errors), 4 * std::sqrt(variances));
}

TEST(Stochastic, IsUnbiasedWithinItsStandardError) {
  ForEachTarget([] {
    const auto f16 = THIMBLE_DISPATCH(RowF16).Get();
    ExpectUnbiased(reference::kF16Format, f16, 1e-3f, 6e4f);
    ExpectUnbiased(reference::kF16Format, f16, 1e-8f, 6e-5f);  // subnormal
    const auto bf16 = THIMBLE_DISPATCH(RowBF16).Get();
    ExpectUnbiased(reference::kBF16Format, bf16, 1e-6f, 1e6f);
    ExpectUnbiased(reference::kBF16Format, bf16, 1e-41f, 1e-38f);
  });
}

TEST(Stochastic, StaysInsideItsRow) {
  ForEachTarget([] {
    for (size_t n = 1; n <= 2 * kRandomGroup + 1; ++n) {
      testing::GuardPageBuffer<float> from(n);
      testing::GuardPageBuffer<BF16> to(n);
      for (size_t i = 0; i < n; ++i) from[i] = 1.0f + 0x1p-9f;
      THIMBLE_DISPATCH(RowBF16).Get()(0, static_cast<int64_t>(n), kRandom,
                                      from.data(), to.data());
      EXPECT_EQ(to[n - 1].bits >> 1, 0x3F80 >> 1);
    }
  });
}

}  // namespace
}  // namespace thimble::kernels
#endif  // HWY_ONCE
