// SPDX-License-Identifier: Apache-2.0
//
// The elementwise kernels on every storage type. Where f32 arithmetic is the
// same on every target, what is stored must be the reference's f32 result,
// rounded once.
#include <gtest/gtest.h>

#include <cstring>
#include <tuple>
#include <vector>

#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/reference.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::ForEachFloatType;
using testing::ForEachTarget;
using testing::kFloatTypes;
using testing::OverThreads;
using testing::StoredTensor;
using testing::SumErrorBound;
using testing::TestContext;

// Below, at and past vectors, pieces of f32 and blocks of work.
constexpr int64_t kCounts[] = {1, 7, 16, 33, 513, 4097, 9001};

void ExpectRounded(const StoredTensor& type, const std::vector<double>& got,
                   const std::vector<float>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got[i], type.Rounded(want[i])) << i;
  }
}

void CheckAdd(DType type_a, DType type_b, DType type_y, int64_t n) {
  SCOPED_TRACE(::testing::Message()
               << DTypeName(type_a) << " + " << DTypeName(type_b) << " as "
               << DTypeName(type_y) << " n=" << n);
  const auto size = static_cast<size_t>(n);
  StoredTensor a(type_a, size, 1), b(type_b, size, 2), y(type_y, size, 99);
  std::vector<float> want(size);
  reference::Add(n, a.Floats().data(), b.Floats().data(), want.data());
  ExpectRounded(
      y,
      OverThreads(y,
                  [&](const Tensor& to, const KernelContext& context) {
                    Add(n, a.tensor(), b.tensor(), to, context);
                  }),
      want);
  if (type_a == type_y) {
    ExpectRounded(
        y,
        OverThreads(a,
                    [&](const Tensor& to, const KernelContext& context) {
                      Add(n, to, b.tensor(), to, context);
                    }),
        want);
  }
  if (type_b == type_y) {
    ExpectRounded(
        y,
        OverThreads(b,
                    [&](const Tensor& to, const KernelContext& context) {
                      Add(n, a.tensor(), to, to, context);
                    }),
        want);
  }
}

TEST(ElementwiseStorage, SumsAreRoundedOnceInEveryMixOfTypes) {
  ForEachTarget([] {
    for (DType a : kFloatTypes) {
      for (DType b : kFloatTypes) {
        for (DType y : kFloatTypes) {
          for (int64_t n : {1, 33, 513, 4101}) CheckAdd(a, b, y, n);
        }
      }
    }
  });
}

TEST(ElementwiseStorage, CopiesAreRoundedOnceAndKeepTheirBitsInOneType) {
  ForEachFloatType([](DType from) {
    for (DType to : kFloatTypes) {
      for (int64_t n : kCounts) {
        const auto size = static_cast<size_t>(n);
        StoredTensor x(from, size, 1), y(to, size, 99);
        const auto got = OverThreads(
            y, [&](const Tensor& out, const KernelContext& context) {
              Copy(n, x.tensor(), out, context);
            });
        ExpectRounded(y, got, x.Floats());
      }
    }
  });
}

TEST(ElementwiseStorage, ReluAndItsGradientsKeepValuesAlsoInPlace) {
  ForEachFloatType([](DType dtype) {
    for (int64_t n : kCounts) {
      SCOPED_TRACE(n);
      const auto size = static_cast<size_t>(n);
      const size_t bytes = (size + 7) / 8;
      StoredTensor x(dtype, size, 3), grad(dtype, size, 4), y(dtype, size, 99);
      if (n > 2) x.Set(2, 0.0f);  // the gradient at 0 is 0
      std::vector<float> want(size), want_grad(size);
      std::vector<uint8_t> want_mask(bytes), mask(bytes);
      reference::Relu(n, x.Floats().data(), want.data());
      reference::ReluMask(n, x.Floats().data(), want_mask.data());
      reference::ReluGradFromOutput(n, want.data(), grad.Floats().data(),
                                    want_grad.data());
      ExpectRounded(y,
                    OverThreads(y,
                                [&](const Tensor& to, const KernelContext& c) {
                                  Relu(n, x.tensor(), to, c);
                                }),
                    want);
      ExpectRounded(
          y,
          OverThreads(x, [&](const Tensor& to,
                             const KernelContext& c) { Relu(n, to, to, c); }),
          want);
      ExpectRounded(y,
                    OverThreads(x,
                                [&](const Tensor& to, const KernelContext& c) {
                                  ReluWithMask(n, to, to, mask.data(), c);
                                }),
                    want);
      ASSERT_EQ(mask, want_mask);
      for (size_t i = 0; i < size; ++i) y.Set(i, want[i]);
      ExpectRounded(y,
                    OverThreads(grad,
                                [&](const Tensor& to, const KernelContext& c) {
                                  ReluGradFromOutput(n, y.tensor(), to, to, c);
                                }),
                    want_grad);
      ExpectRounded(y,
                    OverThreads(y,
                                [&](const Tensor& to, const KernelContext& c) {
                                  ReluGradFromOutput(n, to, grad.tensor(), to,
                                                     c);
                                }),
                    want_grad);
      ExpectRounded(y,
                    OverThreads(grad,
                                [&](const Tensor& to, const KernelContext& c) {
                                  ReluGradFromMask(n, mask.data(), to, to, c);
                                }),
                    want_grad);
    }
  });
}

TEST(ElementwiseStorage, DropoutIsRoundedOnceAlsoInPlace) {
  const DropoutMask mask{
      .seed = 11, .step = 12, .stream = 13, .first = 2, .rate = 0.3f};
  ForEachFloatType([&](DType dtype) {
    for (int64_t n : {1, 63, 64, 65, 200, 1025}) {
      constexpr int64_t kRuns = 3;
      const auto size = static_cast<size_t>(kRuns * n);
      StoredTensor x(dtype, size, 5), y(dtype, size, 99);
      std::vector<float> want(size);
      reference::Dropout(kRuns, n, mask, x.Floats().data(), want.data());
      ExpectRounded(y,
                    OverThreads(y,
                                [&](const Tensor& to, const KernelContext& c) {
                                  Dropout(kRuns, n, mask, x.tensor(), to, c);
                                }),
                    want);
      ExpectRounded(y,
                    OverThreads(x,
                                [&](const Tensor& to, const KernelContext& c) {
                                  Dropout(kRuns, n, mask, to, to, c);
                                }),
                    want);
    }
  });
}

// Images, channels, pixels.
const std::tuple<int64_t, int64_t, int64_t> kStoredImages[] = {
    {1, 1, 1}, {3, 2, 49}, {5, 3, 17}, {2, 3, 784}, {9, 10, 1}, {7, 600, 1}};

// x as bytes; a product and a sum may be rounded in f32 before the rounding to
// the type, or be one operation.
void CheckNormalize(DType dtype, int64_t images, int64_t channels,
                    int64_t pixels) {
  const int64_t all = channels * pixels;
  const auto size = static_cast<size_t>(images * all);
  StoredTensor bytes(DType::kU8, size, 6), y(dtype, size, 99);
  const auto scale = testing::Randoms(channels, 7, -1.0f, 1.0f);
  const auto shift = testing::Randoms(channels, 8, -1.0f, 1.0f);
  const uint8_t* x = bytes.tensor().u8();
  const auto check = [&](const std::vector<double>& got,
                         const std::vector<float>& want) {
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i],
                  y.RoundingBound(want[i]) + SumErrorBound(1, 256.0))
          << i;
    }
  };
  std::vector<float> want(size);
  reference::NormalizeU8(images, channels, pixels, x, scale.data(),
                         shift.data(), want.data());
  check(OverThreads(y,
                    [&](const Tensor& to, const KernelContext& c) {
                      NormalizeU8(images, channels, pixels, x, scale.data(),
                                  shift.data(), to, c);
                    }),
        want);
  const int64_t begin = all / 3;
  const int64_t count = all - begin - all / 4;
  StoredTensor slice(dtype, static_cast<size_t>(images * count), 99);
  std::vector<float> want_slice(slice.size());
  reference::NormalizeU8Slice(images, channels, pixels, begin, count, x,
                              scale.data(), shift.data(), want_slice.data());
  check(OverThreads(slice,
                    [&](const Tensor& to, const KernelContext& c) {
                      NormalizeU8Slice(images, channels, pixels, begin, count,
                                       x, scale.data(), shift.data(), to, c);
                    }),
        want_slice);
}

TEST(ElementwiseStorage, BytesAreNormalizedIntoEveryType) {
  ForEachFloatType([](DType dtype) {
    for (const auto& [images, channels, pixels] : kStoredImages) {
      CheckNormalize(dtype, images, channels, pixels);
    }
  });
}

TEST(ElementwiseStorage, BiasIsAddedToEveryTypeAlsoInPlace) {
  ForEachFloatType([](DType dtype) {
    for (const auto& [images, channels, pixels] : kStoredImages) {
      const auto size = static_cast<size_t>(images * channels * pixels);
      StoredTensor x(dtype, size, 1), y(dtype, size, 99);
      const auto bias = testing::Randoms(channels, 7, -1.0f, 1.0f);
      std::vector<float> want(size);
      reference::BiasAdd(images, channels, pixels, x.Floats().data(),
                         bias.data(), want.data());
      ExpectRounded(y,
                    OverThreads(y,
                                [&](const Tensor& to, const KernelContext& c) {
                                  BiasAdd(images, channels, pixels, x.tensor(),
                                          F32(bias.data()), to, c);
                                }),
                    want);
      ExpectRounded(y,
                    OverThreads(x,
                                [&](const Tensor& to, const KernelContext& c) {
                                  BiasAdd(images, channels, pixels, to,
                                          F32(bias.data()), to, c);
                                }),
                    want);
    }
  });
}

TEST(ElementwiseStorage, BiasGradSumsEveryTypeInF32) {
  ForEachFloatType([](DType dtype) {
    for (const auto& [images, channels, pixels] : kStoredImages) {
      const auto c = static_cast<size_t>(channels);
      StoredTensor grad(dtype, c * static_cast<size_t>(images * pixels), 9);
      StoredTensor sums(DType::kF32, c, 10);
      std::vector<double> want(c);
      reference::BiasGrad(images, channels, pixels, grad.Wide().data(),
                          want.data());
      const auto got = OverThreads(
          sums, [&](const Tensor& to, const KernelContext& context) {
            BiasGrad(images, channels, pixels, grad.tensor(), to, to, context);
          });
      const auto terms = static_cast<double>(images * pixels);
      for (size_t i = 0; i < c; ++i) {
        ASSERT_NEAR(got[i], sums.Get(i) + want[i],
                    SumErrorBound(images * pixels + 1, terms + 1));
      }
    }
  });
}

void SetBits(StoredTensor& x, size_t i, uint32_t bits) {
  const size_t bytes = BytesFor(x.dtype(), 1);
  std::memcpy(static_cast<uint8_t*>(x.data()) + i * bytes, &bits, bytes);
}

// The exponent's bits and one of the fraction.
struct Patterns {
  uint32_t infinity, quiet, sign;
};
Patterns PatternsOf(DType dtype) {
  if (dtype == DType::kF16) return {0x7C00, 0x0200, 0x8000};
  if (dtype == DType::kBF16) return {0x7F80, 0x0040, 0x8000};
  return {0x7F800000, 0x00400000, 0x80000000};
}

TEST(ElementwiseStorage, OneInfinityOrNanIsFoundWhereverItIs) {
  ForEachFloatType([](DType dtype) {
    const Patterns p = PatternsOf(dtype);
    const TestContext contexts[] = {TestContext(1), TestContext(2),
                                    TestContext(3)};
    for (size_t n : {1, 5, 8, 17, 33, 4099, 12301}) {
      StoredTensor x(dtype, n, 14);
      // The largest finite value, the smallest and a zero are fine.
      SetBits(x, 0, p.infinity - 1);
      SetBits(x, n / 2, p.sign | 1);
      SetBits(x, n - 1, p.sign);
      const std::vector<uint8_t> finite = x.Bytes();
      for (const TestContext& context : contexts) {
        ASSERT_TRUE(AllFinite(static_cast<int64_t>(n), x.tensor(), *context));
      }
      for (size_t at = 0; at < n; at += n < 100 ? 1 : 611) {
        for (uint32_t bits : {p.infinity, p.sign | p.infinity,
                              p.infinity | p.quiet, p.infinity | 1}) {
          SetBits(x, at, bits);
          for (const TestContext& context : contexts) {
            ASSERT_FALSE(
                AllFinite(static_cast<int64_t>(n), x.tensor(), *context))
                << at << " of " << n;
          }
          std::memcpy(x.data(), finite.data(), finite.size());
        }
      }
    }
    StoredTensor none(dtype, 0);
    EXPECT_TRUE(AllFinite(0, none.tensor(), *contexts[1]));
  });
}

}  // namespace
}  // namespace thimble::kernels
