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

THIMBLE_DOT_INLINE Words Or(Words a, Words b) {
#if THIMBLE_DOT_IS_AVX2
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
#else
  return _mm512_or_si512(a, b);
#endif
}

// Lane i is from[kStep * i] where bit kStep * i of `there` is set, and zero
// elsewhere. Nothing else is read.
template <int kStep>
THIMBLE_DOT_INLINE Words LoadWhere(const uint16_t* from, uint32_t there) {
#if THIMBLE_DOT_IS_AVX2
  uint32_t room[kLanes] = {};
  for (int64_t i = 0; i < kLanes; ++i) {
    if ((there >> (kStep * i) & 1) != 0) room[i] = from[kStep * i];
  }
  return LoadWords(room);
#else
  if constexpr (kStep == 2) return _mm512_maskz_loadu_epi16(there, from);
  return _mm512_cvtepu16_epi32(
      _mm256_maskz_loadu_epi16(static_cast<__mmask16>(there), from));
#endif
}

// Zero where bit i of `lanes` is not set.
THIMBLE_DOT_INLINE Words KeepLanes(Words v, uint32_t lanes) {
#if THIMBLE_DOT_IS_AVX2
  uint32_t room[kLanes];
  Store(v, room);
  for (int64_t i = 0; i < kLanes; ++i) {
    if ((lanes >> i & 1) == 0) room[i] = 0;
  }
  return LoadWords(room);
#else
  return _mm512_maskz_mov_epi32(static_cast<__mmask16>(lanes), v);
#endif
}

#if THIMBLE_DOT_IS_AVX2
THIMBLE_DOT_INLINE __m256i LowHalvesOf(Words v) {
  const __m256i mask = _mm256_set1_epi32(0xFFFF);
  // Packs within quarters: the middle two change places.
  return _mm256_permute4x64_epi64(
      _mm256_packus_epi32(_mm256_and_si256(v.low, mask),
                          _mm256_and_si256(v.high, mask)),
      0xD8);
}
#endif

// The lower halves of both, those of `first` first.
THIMBLE_DOT_INLINE Words LowHalves(Words first, Words second) {
#if THIMBLE_DOT_IS_AVX2
  return {LowHalvesOf(first), LowHalvesOf(second)};
#else
  alignas(64) static constexpr uint16_t kOrder[32] = {
      0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
      32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
  return _mm512_permutex2var_epi16(first, _mm512_load_si512(kOrder), second);
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

#if !THIMBLE_DOT_IS_AVX2
// Pairs of 32 elements each.
struct ZippedWords {
  Words first, second;
};
THIMBLE_DOT_INLINE ZippedWords ZipWords(Words low, Words high) {
  alignas(64) static constexpr uint16_t kOrder[32] = {
      0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
      8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const Words order = _mm512_load_si512(kOrder);
  const Words above = _mm512_add_epi16(order, _mm512_set1_epi16(16));
  return {_mm512_permutex2var_epi16(low, order, high),
          _mm512_permutex2var_epi16(low, above, high)};
}
#endif

// Pairs of 32 elements of two lines, to 32 words.
THIMBLE_DOT_INLINE void ZipWholeLines(const uint16_t* low, const uint16_t* high,
                                      uint32_t* to) {
#if THIMBLE_DOT_IS_AVX2
  Store(JoinHalves(LoadLowHalves(low), LoadLowHalves(high)), to);
  Store(JoinHalves(LoadLowHalves(low + kLanes), LoadLowHalves(high + kLanes)),
        to + kLanes);
#else
  const ZippedWords zipped = ZipWords(LoadWords(low), LoadWords(high));
  Store(zipped.first, to);
  Store(zipped.second, to + kLanes);
#endif
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

// Pairs (from[i], from[i + terms]) for i < terms <= 16, of n elements in all,
// at most 2 * terms; zeros for those past them. Other lanes are anything.
struct PairOrder {
  explicit PairOrder(size_t terms) : count(terms) {
    for (size_t i = 0; i < 16; ++i) {
      order[2 * i] = static_cast<uint16_t>(i);
      order[2 * i + 1] = static_cast<uint16_t>(i + terms);
    }
  }
  size_t count;
  alignas(64) uint16_t order[32];
};
THIMBLE_DOT_INLINE Words LoadJoined(const PairOrder& terms,
                                    const uint16_t* from, size_t n) {
#if THIMBLE_DOT_IS_AVX2
  uint16_t room[4 * kLanes] = {};
  std::memcpy(room, from, n * sizeof(uint16_t));
  return JoinHalves(LoadLowHalves(room), LoadLowHalves(room + terms.count));
#else
  return _mm512_permutexvar_epi16(
      _mm512_load_si512(terms.order),
      n == 32 ? LoadWords(from)
              : _mm512_maskz_loadu_epi16((1u << n) - 1, from));
#endif
}

#if !THIMBLE_DOT_IS_AVX2
// The same of a whole row of channels of 3x3 kernels, 16 words at a time: where
// they come from is the same again every 16 pairs.
struct NineTerms {
  static constexpr int64_t kTerms = 9;

  constexpr NineTerms() {
    for (int64_t j = 0; j < kTerms; ++j) {
      begin[j] = kLanes * j / kTerms * 2 * kTerms;
      for (int64_t i = 0; i < kLanes; ++i) {
        const int64_t word = kLanes * j + i;
        const int64_t at =
            word / kTerms * 2 * kTerms + word % kTerms - begin[j];
        order[j][2 * i] = static_cast<uint16_t>(at);
        order[j][2 * i + 1] = static_cast<uint16_t>(at + kTerms);
      }
    }
  }
  int64_t begin[kTerms] = {};
  alignas(64) uint16_t order[kTerms][32] = {};  // of 64 elements from there on
};

// Of n elements, with zeros behind them; whole vectors are written.
static inline void JoinNineTerms(const uint16_t* from, int64_t n, int64_t words,
                                 uint32_t* to) {
  static constexpr NineTerms kTable;
  for (int64_t w = 0; w < words;) {
    for (int64_t j = 0; j < NineTerms::kTerms && w < words; ++j, w += kLanes) {
      const uint16_t* at = from + kTable.begin[j];
      const int64_t left = n - kTable.begin[j];
      Words x, y = ZeroWords();
      if (left >= 4 * kLanes) {
        x = LoadWords(at);
        y = LoadWords(at + 2 * kLanes);
      } else {
        x = LoadFirstPairs(at, static_cast<size_t>(left));
        if (left > 2 * kLanes) {
          y = LoadFirstPairs(at + 2 * kLanes,
                             static_cast<size_t>(left - 2 * kLanes));
        }
      }
      Store(_mm512_permutex2var_epi16(x, _mm512_load_si512(kTable.order[j]), y),
            to + w);
    }
    from += kLanes * 2 * NineTerms::kTerms;
    n -= kLanes * 2 * NineTerms::kTerms;
  }
}
#endif

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

// Elements of 16 bits, the first n of 32.
THIMBLE_DOT_INLINE void StoreFirstPairs(Words v, uint16_t* to, size_t n) {
  if (n >= 2 * kLanes) {
    Store(v, to);
    return;
  }
#if THIMBLE_DOT_IS_AVX2
  uint16_t room[2 * kLanes];
  Store(v, room);
  std::memcpy(to, room, n * sizeof(uint16_t));
#else
  _mm512_mask_storeu_epi16(to, (1u << n) - 1, v);
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
