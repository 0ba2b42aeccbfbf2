// SPDX-License-Identifier: Apache-2.0
//
// Sums of two zipped lines of 32 positions (sparse_pass.h): lane l of the first
// vector is position 8 * (l / 4) + l % 4, that of the second one four behind.
// Included once per build, by way of foreach_build.h; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_DOT_SPARSE_LANES_INL_H_) == \
    defined(THIMBLE_DOT_TOGGLE)
#ifdef THIMBLE_KERNELS_DOT_SPARSE_LANES_INL_H_
#undef THIMBLE_KERNELS_DOT_SPARSE_LANES_INL_H_
#else
#define THIMBLE_KERNELS_DOT_SPARSE_LANES_INL_H_
#endif

#include "kernels/dot/lanes-inl.h"

THIMBLE_DOT_BEGIN
namespace {

// GCC would fold a load into both unpacks, and load twice.
THIMBLE_DOT_INLINE Words LoadOnce(const void* from) {
#if THIMBLE_DOT_IS_AVX2
  return LoadWords(from);
#else
  Words v;
  asm("vmovdqu64 %1, %0" : "=v"(v) : "m"(*static_cast<const Words*>(from)));
  return v;
#endif
}

#if THIMBLE_DOT_IS_AVX2

THIMBLE_DOT_INLINE Words ZipLow(Words a, Words b) {
  return {_mm256_unpacklo_epi16(a.low, b.low),
          _mm256_unpacklo_epi16(a.high, b.high)};
}
THIMBLE_DOT_INLINE Words ZipHigh(Words a, Words b) {
  return {_mm256_unpackhi_epi16(a.low, b.low),
          _mm256_unpackhi_epi16(a.high, b.high)};
}

// Positions in their order, sixteen and sixteen.
THIMBLE_DOT_INLINE void InOrder(Floats low, Floats high, Floats& first,
                                Floats& second) {
  first = {_mm256_permute2f128_ps(low.low, high.low, 0x20),
           _mm256_permute2f128_ps(low.low, high.low, 0x31)};
  second = {_mm256_permute2f128_ps(low.high, high.high, 0x20),
            _mm256_permute2f128_ps(low.high, high.high, 0x31)};
}

// Moves sums by one position within rows of `cols`; zeros come in. It is
// emulation that this is for: by way of memory.
class Mover {
 public:
  explicit Mover(int64_t cols) : cols_(cols) {}
  void FromBefore(Floats& low, Floats& high) const { Move(1, low, high); }
  void FromBehind(Floats& low, Floats& high) const { Move(-1, low, high); }

 private:
  void Move(int64_t by, Floats& low, Floats& high) const {
    float from[2 * kLanes], to[2 * kLanes];
    Store(low, from);
    Store(high, from + kLanes);
    const auto lane = [](int64_t p) {
      return p / 8 * 4 + p % 4 + (p % 8 < 4 ? 0 : kLanes);
    };
    for (int64_t p = 0; p < 2 * kLanes; ++p) {
      const int64_t column = p % cols_ - by;
      to[lane(p)] = column < 0 || column >= cols_ ? 0.0f : from[lane(p - by)];
    }
    low = LoadFloats(to);
    high = LoadFloats(to + kLanes);
  }
  int64_t cols_;
};

THIMBLE_DOT_INLINE Words RoundInOrder(Floats low, Floats high) {
  const Words v = Round(low, high);
  const __m256i a = _mm256_unpacklo_epi64(v.low, v.high);
  const __m256i b = _mm256_unpackhi_epi64(v.low, v.high);
  return {_mm256_permute2x128_si256(a, b, 0x20),
          _mm256_permute2x128_si256(a, b, 0x31)};
}

// Lanes of the first half at even, of the second half at odd places.
THIMBLE_DOT_INLINE Floats InterleavedHalves(Floats v) {
  const __m256 low = _mm256_unpacklo_ps(v.low, v.high);
  const __m256 high = _mm256_unpackhi_ps(v.low, v.high);
  return {_mm256_permute2f128_ps(low, high, 0x20),
          _mm256_permute2f128_ps(low, high, 0x31)};
}

// Elements at even, at odd positions of two vectors.
THIMBLE_DOT_INLINE Words ShiftedHalves(Words v) {
  return {_mm256_srli_epi32(v.low, 16), _mm256_srli_epi32(v.high, 16)};
}

#else

THIMBLE_DOT_INLINE Words ZipLow(Words a, Words b) {
  return _mm512_unpacklo_epi16(a, b);
}
THIMBLE_DOT_INLINE Words ZipHigh(Words a, Words b) {
  return _mm512_unpackhi_epi16(a, b);
}

THIMBLE_DOT_INLINE void InOrder(Floats low, Floats high, Floats& first,
                                Floats& second) {
  const Words order =
      _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  first = _mm512_permutex2var_ps(low, order, high);
  second =
      _mm512_permutex2var_ps(low, _mm512_add_epi32(order, SetWords(8)), high);
}

class Mover {
 public:
  explicit Mover(int64_t cols)
      : begins_(cols == 8 ? 0xEEEE : (cols == 16 ? 0xFEFE : 0xFFFE)),
        ends_(cols == 8 ? 0x7777 : (cols == 16 ? 0x7F7F : 0x7FFF)) {}

  // Neighbours before: those of the second vector's lanes are four before in
  // the first one's order, and the other way round.
  THIMBLE_DOT_INLINE void Before(const Mover& mover, Floats& low,
                                 Floats& high) {
    const Words to_low = _mm512_setr_epi32(16, 0, 1, 2, 19, 4, 5, 6, 23, 8, 9,
                                           10, 27, 12, 13, 14);
    const Words to_high = _mm512_setr_epi32(3, 16, 17, 18, 7, 20, 21, 22, 11,
                                            24, 25, 26, 15, 28, 29, 30);
    const Floats moved =
        _mm512_maskz_permutex2var_ps(mover.begins_, low, to_low, high);
    high = _mm512_permutex2var_ps(low, to_high, high);
    low = moved;
  }
  THIMBLE_DOT_INLINE void Behind(const Mover& mover, Floats& low,
                                 Floats& high) {
    const Words to_low = _mm512_setr_epi32(1, 2, 3, 16, 5, 6, 7, 20, 9, 10, 11,
                                           24, 13, 14, 15, 28);
    const Words to_high = _mm512_setr_epi32(17, 18, 19, 4, 21, 22, 23, 8, 25,
                                            26, 27, 12, 29, 30, 31, 0);
    const Floats moved = _mm512_permutex2var_ps(low, to_low, high);
    high = _mm512_maskz_permutex2var_ps(mover.ends_, low, to_high, high);
    low = moved;
  }
  void FromBefore(Floats& low, Floats& high) const { Before(*this, low, high); }
  void FromBehind(Floats& low, Floats& high) const { Behind(*this, low, high); }

 private:
  __mmask16 begins_;
  __mmask16 ends_;
};

THIMBLE_DOT_INLINE Words RoundInOrder(Floats low, Floats high) {
  return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7),
                                  Round(low, high));
}

THIMBLE_DOT_INLINE Floats InterleavedHalves(Floats v) {
  const Words order =
      _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
  return _mm512_permutexvar_ps(order, v);
}

THIMBLE_DOT_INLINE Words ShiftedHalves(Words v) {
  return _mm512_srli_epi32(v, 16);
}

#endif

}  // namespace
THIMBLE_DOT_END

#endif  // per-build include guard
