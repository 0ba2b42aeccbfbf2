// SPDX-License-Identifier: Apache-2.0
//
// Dropout's body. Included once per SIMD target, after <hwy/highway.h>; hence
// no
// `#pragma once`.
#if defined(THIMBLE_KERNELS_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_DROPOUT_INL_H_
#undef THIMBLE_KERNELS_DROPOUT_INL_H_
#else
#define THIMBLE_KERNELS_DROPOUT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/elementwise/elementwise.h"
#include "kernels/philox-inl.h"
#include "kernels/simd-inl.h"
#include "kernels/stage-inl.h"
#include "kernels/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using DMask = DRandom;
static_assert(kDropoutBlocks == kRandomBlocks);

// y = x * scale where the bits are at least the rate, else 0.
HWY_INLINE hn::Vec<DMask> DropLanes(VBits bits, hn::Vec<DMask> rate,
                                    hn::Vec<DMask> scale, hn::Vec<DMask> x) {
  const DMask d;
  const hn::RebindToSigned<DMask> di;
  // 24 bits, exact in f32.
  const auto uniform =
      hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRight<8>(bits)));
  return hn::IfThenElseZero(hn::Ge(uniform, rate), hn::Mul(x, scale));
}

// One group of an image: its first n <= kDropoutGroup elements are there.
HWY_INLINE void DropoutGroupOf(const DropoutMask& mask, const PhiloxKeys& keys,
                               uint32_t first_block, size_t n, const float* x,
                               float* y) {
  const DMask d;
  const size_t lanes = hn::Lanes(d);
  const auto rate = hn::Set(d, mask.rate * 0x1p24f);
  const auto scale = hn::Set(d, mask.scale());
  for (size_t lane = 0; lane < kDropoutBlocks; lane += lanes) {
    VBits bits[4];
    DrawLanes(keys, mask.step, mask.stream,
              first_block + static_cast<uint32_t>(lane), bits);
    for (size_t word = 0; word < 4; ++word) {
      const size_t at = word * kDropoutBlocks + lane;
      if (at >= n) break;
      const size_t count = n - at;
      if (count >= lanes) {
        hn::StoreU(DropLanes(bits[word], rate, scale, hn::LoadU(d, x + at)), d,
                   y + at);
      } else {
        StoreFirst(
            DropLanes(bits[word], rate, scale, LoadFirst(d, x + at, count)), d,
            y + at, count);
      }
    }
  }
}

// Groups [begin, end) of images of `elements` each, counted over all of them.
inline void DropoutGroups(int64_t begin, int64_t end, int64_t elements,
                          const DropoutMask& mask, const ConstTensor& x,
                          const Tensor& y) {
  constexpr auto kGroup = static_cast<int64_t>(kDropoutGroup);
  const int64_t groups = (elements + kGroup - 1) / kGroup;
  const PhiloxKeys keys(mask.seed);
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t first = unit % groups * kGroup;
    const int64_t block =
        (mask.first * groups + unit) * static_cast<int64_t>(kDropoutBlocks);
    const int64_t at = unit / groups * elements + first;
    const int64_t n = HWY_MIN(kGroup, elements - first);
    HWY_ALIGN float line[kDropoutGroup];
    float* to = PieceToWrite(y, at, line);
    DropoutGroupOf(mask, keys, static_cast<uint32_t>(block),
                   static_cast<size_t>(n), ReadPiece(x, at, n, line), to);
    WritePiece(n, to, y, at);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
