// SPDX-License-Identifier: Apache-2.0
//
// Rows of f32 and of 16 bits that may end before a vector does, for kernels
// with dot products: nothing past the end is touched, and lanes that are not
// there are zero. Included once per build, by way of foreach_build.h; hence no
// `#pragma once`.
#if defined(THIMBLE_KERNELS_DOT_HALVES_INL_H_) == defined(THIMBLE_DOT_TOGGLE)
#ifdef THIMBLE_KERNELS_DOT_HALVES_INL_H_
#undef THIMBLE_KERNELS_DOT_HALVES_INL_H_
#else
#define THIMBLE_KERNELS_DOT_HALVES_INL_H_
#endif

#include "kernels/dot/lanes-inl.h"

THIMBLE_DOT_BEGIN

#if !THIMBLE_DOT_IS_AVX2
// REQUIRES: n < 16.
THIMBLE_DOT_INLINE __mmask16 FirstLanes(size_t n) {
  return static_cast<__mmask16>((1u << n) - 1);
}
#endif

// Sixteen elements of 16 bits, each in a lane of its own.
THIMBLE_DOT_INLINE Words LoadLowHalves(const uint16_t* from) {
#if THIMBLE_DOT_IS_AVX2
  const auto* at = reinterpret_cast<const __m128i*>(from);
  return {_mm256_cvtepu16_epi32(_mm_loadu_si128(at)),
          _mm256_cvtepu16_epi32(_mm_loadu_si128(at + 1))};
#else
  return _mm512_cvtepu16_epi32(
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#endif
}

// low | high << 16. REQUIRES: the upper halves of `low` are zero.
THIMBLE_DOT_INLINE Words JoinHalves(Words low, Words high) {
#if THIMBLE_DOT_IS_AVX2
  return {_mm256_or_si256(low.low, _mm256_slli_epi32(high.low, 16)),
          _mm256_or_si256(low.high, _mm256_slli_epi32(high.high, 16))};
#else
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
#endif
}

THIMBLE_DOT_INLINE Words LoadFirstLowHalves(const uint16_t* from, size_t n) {
  if (n >= kLanes) return LoadLowHalves(from);
#if THIMBLE_DOT_IS_AVX2
  uint16_t room[kLanes] = {};
  std::memcpy(room, from, n * sizeof(uint16_t));
  return LoadLowHalves(room);
#else
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(FirstLanes(n), from));
#endif
}

// Pairs of the first n of two lines; no second one is a line of zeros.
THIMBLE_DOT_INLINE Words ZipLines(const uint16_t* low, const uint16_t* high,
                                  size_t n) {
  if (n == 0) return ZeroWords();
  const Words first = LoadFirstLowHalves(low, n);
  if (high == nullptr) return first;
  return JoinHalves(first, LoadFirstLowHalves(high, n));
}

// Words of the first n of 32 elements.
THIMBLE_DOT_INLINE Words LoadFirstPairs(const uint16_t* from, size_t n) {
  if (n >= 2 * kLanes) return LoadWords(from);
#if THIMBLE_DOT_IS_AVX2
  uint16_t room[2 * kLanes] = {};
  std::memcpy(room, from, n * sizeof(uint16_t));
  return LoadWords(room);
#else
  return _mm512_maskz_loadu_epi16((1u << n) - 1, from);
#endif
}

// The first n, at most 16, as f32.
THIMBLE_DOT_INLINE Floats LoadFirstHalves(const uint16_t* from, size_t n) {
  return Even(LoadFirstLowHalves(from, n));
}

THIMBLE_DOT_INLINE Floats LoadFirstFloats(const float* from, size_t n) {
  if (n >= kLanes) return LoadFloats(from);
#if THIMBLE_DOT_IS_AVX2
  float room[kLanes] = {};
  std::memcpy(room, from, n * sizeof(float));
  return LoadFloats(room);
#else
  return _mm512_maskz_loadu_ps(FirstLanes(n), from);
#endif
}

THIMBLE_DOT_INLINE void StoreFirstFloats(Floats v, float* to, size_t n) {
  if (n >= kLanes) {
    Store(v, to);
    return;
  }
#if THIMBLE_DOT_IS_AVX2
  float room[kLanes];
  Store(v, room);
  std::memcpy(to, room, n * sizeof(float));
#else
  _mm512_mask_storeu_ps(to, FirstLanes(n), v);
#endif
}

THIMBLE_DOT_INLINE void StoreFirstWords(Words v, uint32_t* to, size_t n) {
  if (n >= kLanes) {
    Store(v, to);
    return;
  }
#if THIMBLE_DOT_IS_AVX2
  uint32_t room[kLanes];
  Store(v, room);
  std::memcpy(to, room, n * sizeof(uint32_t));
#else
  _mm512_mask_storeu_epi32(to, FirstLanes(n), v);
#endif
}

// Rounded to bf16.
THIMBLE_DOT_INLINE void StoreFirstHalves(Floats v, uint16_t* to, size_t n) {
#if THIMBLE_DOT_IS_AVX2
  uint16_t room[2 * kLanes];
  Store(Round(v, v), room);
  std::memcpy(to, room, (n < kLanes ? n : kLanes) * sizeof(uint16_t));
#else
  const __m256i halves = _mm512_castsi512_si256(Round(v, v));
  if (n >= kLanes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
  } else {
    _mm256_mask_storeu_epi16(to, FirstLanes(n), halves);
  }
#endif
}

// `lines` of `terms` elements each, `stride` apart, become columns: pairs of
// neighbouring terms as [pair][width]. Columns that have no line are zero.
static inline void PackColumns(const uint16_t* from, size_t lines,
                               size_t stride, size_t terms, size_t width,
                               uint32_t* to) {
  const size_t pairs = (terms + 1) / 2;
  for (size_t c = 0; c < width; c += kLanes) {
    for (size_t k = 0; k < pairs; k += kLanes) {
      Words square[16];
      THIMBLE_DOT_UNROLL
      for (size_t i = 0; i < 16; ++i) {
        square[i] =
            c + i < lines
                ? LoadFirstPairs(from + (c + i) * stride + 2 * k, terms - 2 * k)
                : ZeroWords();
      }
      Transpose16(square);
      const size_t count = pairs - k < kLanes ? pairs - k : kLanes;
      for (size_t i = 0; i < count; ++i) {
        Store(square[i], to + (k + i) * width + c);
      }
    }
  }
}

THIMBLE_DOT_END

#endif  // per-build include guard
