// SPDX-License-Identifier: Apache-2.0
//
// The primitives of lanes-inl.h on vectors of 64 bytes. Included by it alone.

using Floats = __m512;
using Words = __m512i;

THIMBLE_DOT_INLINE Words WordsOf(Floats v) { return _mm512_castps_si512(v); }
THIMBLE_DOT_INLINE Floats FloatsOf(Words v) { return _mm512_castsi512_ps(v); }

THIMBLE_DOT_INLINE Floats ZeroFloats() { return _mm512_setzero_ps(); }
THIMBLE_DOT_INLINE Words ZeroWords() { return _mm512_setzero_si512(); }
THIMBLE_DOT_INLINE Floats SetFloats(float v) { return _mm512_set1_ps(v); }
THIMBLE_DOT_INLINE Words SetWords(uint32_t v) {
  return _mm512_set1_epi32(static_cast<int>(v));
}
THIMBLE_DOT_INLINE Words SetPair(const void* from) {
  int32_t pair;
  std::memcpy(&pair, from, sizeof pair);
  return _mm512_set1_epi32(pair);
}

THIMBLE_DOT_INLINE Floats LoadFloats(const float* from) {
  return _mm512_loadu_ps(from);
}
THIMBLE_DOT_INLINE void Store(Floats v, float* to) { _mm512_storeu_ps(to, v); }
THIMBLE_DOT_INLINE Words LoadWords(const void* from) {
  return _mm512_loadu_si512(from);
}
THIMBLE_DOT_INLINE void Store(Words v, void* to) { _mm512_storeu_si512(to, v); }
THIMBLE_DOT_INLINE Words LoadHalves(const void* low, const void* high) {
  return _mm512_inserti64x4(
      _mm512_castsi256_si512(
          _mm256_loadu_si256(static_cast<const __m256i*>(low))),
      _mm256_loadu_si256(static_cast<const __m256i*>(high)), 1);
}
THIMBLE_DOT_INLINE void StoreHalves(Words v, void* low, void* high) {
  _mm256_storeu_si256(static_cast<__m256i*>(low), _mm512_castsi512_si256(v));
  _mm256_storeu_si256(static_cast<__m256i*>(high),
                      _mm512_extracti64x4_epi64(v, 1));
}
THIMBLE_DOT_INLINE Words LoadNineWords(const void* from) {
  return _mm512_maskz_loadu_epi32(0x1FF, from);
}
THIMBLE_DOT_INLINE Words LoadQuarters(const void* q0, const void* q1,
                                      const void* q2, const void* q3) {
  Words v =
      _mm512_castsi128_si512(_mm_loadu_si128(static_cast<const __m128i*>(q0)));
  v = _mm512_inserti32x4(v, _mm_loadu_si128(static_cast<const __m128i*>(q1)),
                         1);
  v = _mm512_inserti32x4(v, _mm_loadu_si128(static_cast<const __m128i*>(q2)),
                         2);
  return _mm512_inserti32x4(v, _mm_loadu_si128(static_cast<const __m128i*>(q3)),
                            3);
}
THIMBLE_DOT_INLINE void StoreQuarters(Words v, void* q0, void* q1, void* q2,
                                      void* q3) {
  _mm_storeu_si128(static_cast<__m128i*>(q0), _mm512_castsi512_si128(v));
  _mm_storeu_si128(static_cast<__m128i*>(q1), _mm512_extracti32x4_epi32(v, 1));
  _mm_storeu_si128(static_cast<__m128i*>(q2), _mm512_extracti32x4_epi32(v, 2));
  _mm_storeu_si128(static_cast<__m128i*>(q3), _mm512_extracti32x4_epi32(v, 3));
}

using LaneMask = __mmask16;
THIMBLE_DOT_INLINE LaneMask MaskOf(uint32_t lanes) {
  return static_cast<LaneMask>(lanes);
}
THIMBLE_DOT_INLINE Words LoadWords(LaneMask mask, const void* from) {
  return _mm512_maskz_loadu_epi32(mask, from);
}
template <int kOrder>
THIMBLE_DOT_INLINE Words LoadFourOfEight(const void* from, LaneMask first,
                                         LaneMask last) {
  const Words low = LoadWords(first, from);
  const Words high = LoadWords(last, static_cast<const std::byte*>(from) + 64);
  return _mm512_shuffle_i32x4(low, high, kOrder);
}
THIMBLE_DOT_INLINE Words LoadEvenQuarters(const void* from, LaneMask first,
                                          LaneMask last) {
  return LoadFourOfEight<0x88>(from, first, last);
}
THIMBLE_DOT_INLINE Words LoadOddQuarters(const void* from, LaneMask first,
                                         LaneMask last) {
  return LoadFourOfEight<0xDD>(from, first, last);
}

THIMBLE_DOT_INLINE Floats Add(Floats a, Floats b) {
  return _mm512_add_ps(a, b);
}
THIMBLE_DOT_INLINE Floats Sub(Floats a, Floats b) {
  return _mm512_sub_ps(a, b);
}
THIMBLE_DOT_INLINE Floats Mul(Floats a, Floats b) {
  return _mm512_mul_ps(a, b);
}
THIMBLE_DOT_INLINE Floats FusedMulAdd(Floats a, Floats b, Floats c) {
  return _mm512_fmadd_ps(a, b, c);
}
THIMBLE_DOT_INLINE Floats ZeroIfNegative(Floats v) {
  const __mmask16 negative =
      _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_LT_OQ);
  return _mm512_mask_mov_ps(v, negative, _mm512_setzero_ps());
}

// The instruction gives its second operand where one is not a number.
THIMBLE_DOT_INLINE Floats AtLeast(Floats bound, Floats v) {
  return _mm512_max_ps(bound, v);
}
THIMBLE_DOT_INLINE Floats IfPositive(Floats u, Floats v) {
  return _mm512_maskz_mov_ps(
      _mm512_cmp_ps_mask(u, _mm512_setzero_ps(), _CMP_GT_OQ), v);
}
THIMBLE_DOT_INLINE Words Masked(LaneMask mask, Words v) {
  return _mm512_maskz_mov_epi32(mask, v);
}
THIMBLE_DOT_INLINE Floats MaskedMulAdd(LaneMask mask, Floats a, Floats b,
                                       Floats c) {
  return _mm512_maskz_fmadd_ps(mask, a, b, c);
}

THIMBLE_DOT_INLINE Floats Even(Words v) {
  return FloatsOf(_mm512_slli_epi32(v, 16));
}
THIMBLE_DOT_INLINE Floats Odd(Words v) {
  return FloatsOf(_mm512_and_si512(v, SetWords(0xFFFF0000u)));
}

THIMBLE_DOT_INLINE Words PackEven(Words low, Words high) {
  alignas(64) static constexpr uint16_t kOrder[32] = {
      0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
      32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
  return _mm512_permutex2var_epi16(low, _mm512_load_si512(kOrder), high);
}
THIMBLE_DOT_INLINE Words PackOdd(Words low, Words high) {
  alignas(64) static constexpr uint16_t kOrder[32] = {
      1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
      33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return _mm512_permutex2var_epi16(low, _mm512_load_si512(kOrder), high);
}

#if THIMBLE_DOT_IS_NATIVE

THIMBLE_DOT_INLINE Floats Dot(Floats sum, Words x, Words w) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x),
                          reinterpret_cast<__m512bh>(w));
}
// The compiler would load the pair into a register first.
THIMBLE_DOT_INLINE Floats DotPair(Floats sum, Words x, const uint32_t* pair) {
  asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(x), "m"(*pair));
  return sum;
}
THIMBLE_DOT_INLINE Words Round(Floats low, Floats high) {
  return reinterpret_cast<Words>(_mm512_cvtne2ps_pbh(high, low));
}
THIMBLE_DOT_INLINE Words Zip(Floats low, Floats high) {
  alignas(64) static constexpr uint16_t kOrder[32] = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), Round(low, high));
}

#else

THIMBLE_DOT_INLINE Floats Dot(Floats sum, Words x, Words w) {
  const Floats first = FusedMulAdd(Odd(x), Odd(w), sum);
  return FusedMulAdd(Even(x), Even(w), first);
}
THIMBLE_DOT_INLINE Floats DotPair(Floats sum, Words x, const uint32_t* pair) {
  return Dot(sum, x, SetPair(pair));
}
// The upper half of each lane is the value in bf16.
THIMBLE_DOT_INLINE Words RoundedBits(Floats v) {
  const Words bits = WordsOf(v);
  const Words odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), SetWords(1));
  Words rounded = _mm512_add_epi32(bits, SetWords(0x7FFFu));
  rounded = _mm512_add_epi32(rounded, odd);
  const Words magnitude = _mm512_and_si512(bits, SetWords(0x7FFFFFFFu));
  const __mmask16 is_nan =
      _mm512_cmpgt_epi32_mask(magnitude, SetWords(0x7F800000u));
  rounded = _mm512_mask_or_epi32(rounded, is_nan, bits, SetWords(0x400000u));
  const __mmask16 is_denormal =
      _mm512_cmplt_epi32_mask(magnitude, SetWords(0x00800000u));
  return _mm512_mask_and_epi32(rounded, is_denormal, bits,
                               SetWords(0x80000000u));
}
THIMBLE_DOT_INLINE Words Round(Floats low, Floats high) {
  const __m256i a =
      _mm512_cvtepi32_epi16(_mm512_srli_epi32(RoundedBits(low), 16));
  const __m256i b =
      _mm512_cvtepi32_epi16(_mm512_srli_epi32(RoundedBits(high), 16));
  return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}
THIMBLE_DOT_INLINE Words Zip(Floats low, Floats high) {
  return _mm512_or_si512(
      _mm512_srli_epi32(RoundedBits(low), 16),
      _mm512_and_si512(RoundedBits(high), SetWords(0xFFFF0000u)));
}

#endif

THIMBLE_DOT_INLINE Words ZipHalves(Floats even, Floats odd) {
  alignas(64) static constexpr uint16_t kOrder[32] = {
      0, 8,  16, 24, 1, 9,  17, 25, 2, 10, 18, 26, 3, 11, 19, 27,
      4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), Round(even, odd));
}

THIMBLE_DOT_INLINE void StoreInterleaved(Floats even, Floats odd, float* low,
                                         float* high) {
  alignas(64) static constexpr uint32_t kLow[16] = {0, 16, 1, 17, 2, 18, 3, 19,
                                                    4, 20, 5, 21, 6, 22, 7, 23};
  const Words order = _mm512_load_si512(kLow);
  const Words above = _mm512_add_epi32(order, SetWords(8));
  _mm512_storeu_ps(low, _mm512_permutex2var_ps(even, order, odd));
  _mm512_storeu_ps(high, _mm512_permutex2var_ps(even, above, odd));
}

template <int kRow>
THIMBLE_DOT_INLINE Floats FromBefore(Floats v) {
  constexpr __mmask16 kThere = kRow == 16  ? 0xFFFE
                               : kRow == 8 ? 0xFEFE
                                           : 0xEEEE;
  return FloatsOf(
      _mm512_maskz_alignr_epi32(kThere, WordsOf(v), WordsOf(v), 15));
}
template <int kRow>
THIMBLE_DOT_INLINE Floats FromBehind(Floats v) {
  constexpr __mmask16 kThere = kRow == 16  ? 0x7FFF
                               : kRow == 8 ? 0x7F7F
                                           : 0x7777;
  return FloatsOf(_mm512_maskz_alignr_epi32(kThere, WordsOf(v), WordsOf(v), 1));
}

// 4x4 blocks of lanes are transposed within quarters first, then the quarters
// of every fourth vector change places.
THIMBLE_DOT_INLINE void Transpose16(Words (&r)[16]) {
  Words t[16];
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 4; ++i) {
    const Words low02 = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    const Words low13 = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xDD);
    const Words high02 = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    const Words high13 = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xDD);
    r[i] = _mm512_shuffle_i32x4(low02, high02, 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(low02, high02, 0xDD);
    r[i + 4] = _mm512_shuffle_i32x4(low13, high13, 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(low13, high13, 0xDD);
  }
}

THIMBLE_DOT_INLINE void TransposePairs8(Words (&r)[8]) {
  Words t[8];
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 8; i += 2) {
    t[i] = _mm512_unpacklo_epi64(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi64(r[i], r[i + 1]);
  }
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 2; ++i) {
    const Words low02 = _mm512_shuffle_i32x4(t[i], t[i + 2], 0x88);
    const Words low13 = _mm512_shuffle_i32x4(t[i], t[i + 2], 0xDD);
    const Words high02 = _mm512_shuffle_i32x4(t[i + 4], t[i + 6], 0x88);
    const Words high13 = _mm512_shuffle_i32x4(t[i + 4], t[i + 6], 0xDD);
    r[i] = _mm512_shuffle_i32x4(low02, high02, 0x88);
    r[i + 4] = _mm512_shuffle_i32x4(low02, high02, 0xDD);
    r[i + 2] = _mm512_shuffle_i32x4(low13, high13, 0x88);
    r[i + 6] = _mm512_shuffle_i32x4(low13, high13, 0xDD);
  }
}
