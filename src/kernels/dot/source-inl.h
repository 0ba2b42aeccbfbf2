// SPDX-License-Identifier: Apache-2.0
//
// Rows of a convolution's input in bf16, after its prologue, for direct
// convolutions (direct.h). Included once per build, by way of foreach_build.h;
// hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_DOT_SOURCE_INL_H_) == defined(THIMBLE_DOT_TOGGLE)
#ifdef THIMBLE_KERNELS_DOT_SOURCE_INL_H_
#undef THIMBLE_KERNELS_DOT_SOURCE_INL_H_
#else
#define THIMBLE_KERNELS_DOT_SOURCE_INL_H_
#endif

#include "kernels/dot/halves-inl.h"
#include "kernels/dot/lanes-inl.h"

THIMBLE_DOT_BEGIN
namespace {

// One channel of the input.
struct SourceRow {
  SourceRow(const Conv2dInput& input, int64_t channel)
      : data(input.x.halves(DType::kBF16)),
        prologue(input.scale != nullptr),
        relu(input.relu),
        scale(prologue ? input.scale + channel : nullptr),
        shift(prologue ? input.shift + channel : nullptr) {}

  const uint16_t* data;  // of the tensor
  bool prologue;
  bool relu;
  const float* scale;
  const float* shift;
};

THIMBLE_DOT_INLINE Floats Activated(const SourceRow& row, Floats v) {
  if (!row.prologue) return v;
  v = FusedMulAdd(v, SetFloats(*row.scale), SetFloats(*row.shift));
  return row.relu ? ZeroIfNegative(v) : v;
}

// Where what plane column b reads of a source row begins in its lines.
template <typename T>
THIMBLE_DOT_INLINE T* LineOf(const dot::Planes& planes, int64_t b, T* lines) {
  const int64_t col = b - planes.pad_w + planes.margin() * planes.step;
  return lines + col % planes.step * planes.line() + col / planes.step;
}

// Elements [low_at, low_at + width) of the tensor and those from high_at on
// (none where it is negative), as pairs in the lines.
THIMBLE_DOT_INLINE void ReadPairs(const dot::Planes& planes,
                                  const SourceRow& low, const SourceRow& high,
                                  int64_t low_at, int64_t high_at,
                                  uint32_t* lines) {
  const bool whole = high_at >= 0;
  uint32_t* to = lines + planes.margin();
  for (int64_t col = 0; col < planes.src_width; col += planes.step * kLanes) {
    const auto left = static_cast<size_t>(planes.src_width - col);
    const uint16_t* a = low.data + low_at + col;
    const uint16_t* b = whole ? high.data + high_at + col : nullptr;
    Floats zero = ZeroFloats();
    if (planes.step == 1) {
      const Floats x = Activated(low, LoadFirstHalves(a, left));
      const Floats y = whole ? Activated(high, LoadFirstHalves(b, left)) : zero;
      StoreFirstWords(Zip(x, y), to + col, left);
      continue;
    }
    const Words x = LoadFirstPairs(a, left);
    const Words y = whole ? LoadFirstPairs(b, left) : ZeroWords();
    const Floats even = whole ? Activated(high, Even(y)) : zero;
    const Floats odd = whole ? Activated(high, Odd(y)) : zero;
    StoreFirstWords(Zip(Activated(low, Even(x)), even), to + col / 2,
                    (left + 1) / 2);
    StoreFirstWords(Zip(Activated(low, Odd(x)), odd),
                    to + planes.line() + col / 2, left / 2);
  }
}

// Elements [at, at + width) of the tensor, alone, in the lines.
THIMBLE_DOT_INLINE void ReadHalves(const dot::Planes& planes,
                                   const SourceRow& row, int64_t at,
                                   uint16_t* lines) {
  uint16_t* to = lines + planes.margin();
  for (int64_t col = 0; col < planes.src_width; col += planes.step * kLanes) {
    const auto left = static_cast<size_t>(planes.src_width - col);
    const uint16_t* from = row.data + at + col;
    if (planes.step == 1) {
      StoreFirstHalves(Activated(row, LoadFirstHalves(from, left)), to + col,
                       left);
      continue;
    }
    const Words x = LoadFirstPairs(from, left);
    StoreFirstHalves(Activated(row, Even(x)), to + col / 2, (left + 1) / 2);
    StoreFirstHalves(Activated(row, Odd(x)), to + planes.line() + col / 2,
                     left / 2);
  }
}

// Sixteen of each, in turn.
THIMBLE_DOT_INLINE void Interleave(Floats even, Floats odd, float* to) {
#if THIMBLE_DOT_IS_AVX2
  const auto half = [to](__m256 a, __m256 b, int at) {
    const __m256 low = _mm256_unpacklo_ps(a, b);
    const __m256 high = _mm256_unpackhi_ps(a, b);
    _mm256_storeu_ps(to + at, _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_storeu_ps(to + at + 8, _mm256_permute2f128_ps(low, high, 0x31));
  };
  half(even.low, odd.low, 0);
  half(even.high, odd.high, 16);
#else
  const Words low =
      _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const Words high = _mm512_add_epi32(low, SetWords(8));
  Store(_mm512_permutex2var_ps(even, low, odd), to);
  Store(_mm512_permutex2var_ps(even, high, odd), to + 16);
#endif
}

}  // namespace
THIMBLE_DOT_END

#endif  // per-build include guard
