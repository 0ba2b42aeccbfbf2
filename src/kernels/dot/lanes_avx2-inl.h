// SPDX-License-Identifier: Apache-2.0
//
// The primitives of lanes-inl.h on two vectors of 32 bytes. Included by it
// alone.

struct Floats {
  __m256 low;
  __m256 high;
};
struct Words {
  __m256i low;
  __m256i high;
};

THIMBLE_DOT_INLINE Words WordsOf(Floats v) {
  return {_mm256_castps_si256(v.low), _mm256_castps_si256(v.high)};
}
THIMBLE_DOT_INLINE Floats FloatsOf(Words v) {
  return {_mm256_castsi256_ps(v.low), _mm256_castsi256_ps(v.high)};
}

THIMBLE_DOT_INLINE Floats ZeroFloats() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
THIMBLE_DOT_INLINE Words ZeroWords() {
  return {_mm256_setzero_si256(), _mm256_setzero_si256()};
}
THIMBLE_DOT_INLINE Floats SetFloats(float v) {
  return {_mm256_set1_ps(v), _mm256_set1_ps(v)};
}
THIMBLE_DOT_INLINE __m256i SetHalf(uint32_t v) {
  return _mm256_set1_epi32(static_cast<int>(v));
}
THIMBLE_DOT_INLINE Words SetWords(uint32_t v) {
  return {SetHalf(v), SetHalf(v)};
}
THIMBLE_DOT_INLINE Words SetPair(const void* from) {
  uint32_t pair;
  std::memcpy(&pair, from, sizeof pair);
  return SetWords(pair);
}

THIMBLE_DOT_INLINE Floats LoadFloats(const float* from) {
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}
THIMBLE_DOT_INLINE void Store(Floats v, float* to) {
  _mm256_storeu_ps(to, v.low);
  _mm256_storeu_ps(to + 8, v.high);
}
THIMBLE_DOT_INLINE Words LoadHalves(const void* low, const void* high) {
  return {_mm256_loadu_si256(static_cast<const __m256i*>(low)),
          _mm256_loadu_si256(static_cast<const __m256i*>(high))};
}
THIMBLE_DOT_INLINE void StoreHalves(Words v, void* low, void* high) {
  _mm256_storeu_si256(static_cast<__m256i*>(low), v.low);
  _mm256_storeu_si256(static_cast<__m256i*>(high), v.high);
}
THIMBLE_DOT_INLINE Words LoadWords(const void* from) {
  return LoadHalves(from, static_cast<const std::byte*>(from) + 32);
}
THIMBLE_DOT_INLINE void Store(Words v, void* to) {
  StoreHalves(v, to, static_cast<std::byte*>(to) + 32);
}
THIMBLE_DOT_INLINE Words LoadNineWords(const void* from) {
  int32_t last;
  std::memcpy(&last, static_cast<const std::byte*>(from) + 32, sizeof last);
  return {_mm256_loadu_si256(static_cast<const __m256i*>(from)),
          _mm256_zextsi128_si256(_mm_cvtsi32_si128(last))};
}
THIMBLE_DOT_INLINE __m256i TwoQuarters(const void* low, const void* high) {
  return _mm256_inserti128_si256(
      _mm256_castsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(low))),
      _mm_loadu_si128(static_cast<const __m128i*>(high)), 1);
}
THIMBLE_DOT_INLINE Words LoadQuarters(const void* q0, const void* q1,
                                      const void* q2, const void* q3) {
  return {TwoQuarters(q0, q1), TwoQuarters(q2, q3)};
}
THIMBLE_DOT_INLINE void StoreQuarters(Words v, void* q0, void* q1, void* q2,
                                      void* q3) {
  _mm_storeu_si128(static_cast<__m128i*>(q0), _mm256_castsi256_si128(v.low));
  _mm_storeu_si128(static_cast<__m128i*>(q1),
                   _mm256_extracti128_si256(v.low, 1));
  _mm_storeu_si128(static_cast<__m128i*>(q2), _mm256_castsi256_si128(v.high));
  _mm_storeu_si128(static_cast<__m128i*>(q3),
                   _mm256_extracti128_si256(v.high, 1));
}

using LaneMask = Words;
THIMBLE_DOT_INLINE __m256i HalfMask(uint32_t lanes) {
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(_mm256_and_si256(SetHalf(lanes), bits), bits);
}
THIMBLE_DOT_INLINE LaneMask MaskOf(uint32_t lanes) {
  return {HalfMask(lanes), HalfMask(lanes >> 8)};
}
// Of the 16 lanes at `from`.
template <int kOrder>
THIMBLE_DOT_INLINE __m256i LoadTwoOfFour(const void* from, LaneMask mask) {
  const int* at = static_cast<const int*>(from);
  return _mm256_permute2x128_si256(_mm256_maskload_epi32(at, mask.low),
                                   _mm256_maskload_epi32(at + 8, mask.high),
                                   kOrder);
}
THIMBLE_DOT_INLINE Words LoadEvenQuarters(const void* from, LaneMask first,
                                          LaneMask last) {
  return {LoadTwoOfFour<0x20>(from, first),
          LoadTwoOfFour<0x20>(static_cast<const std::byte*>(from) + 64, last)};
}
THIMBLE_DOT_INLINE Words LoadOddQuarters(const void* from, LaneMask first,
                                         LaneMask last) {
  return {LoadTwoOfFour<0x31>(from, first),
          LoadTwoOfFour<0x31>(static_cast<const std::byte*>(from) + 64, last)};
}

THIMBLE_DOT_INLINE Floats Add(Floats a, Floats b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
THIMBLE_DOT_INLINE Floats Sub(Floats a, Floats b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
THIMBLE_DOT_INLINE Floats Mul(Floats a, Floats b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
THIMBLE_DOT_INLINE Floats FusedMulAdd(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low),
          _mm256_fmadd_ps(a.high, b.high, c.high)};
}
THIMBLE_DOT_INLINE __m256 HalfIfNotNegative(__m256 v) {
  return _mm256_andnot_ps(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_LT_OQ), v);
}
THIMBLE_DOT_INLINE Floats ZeroIfNegative(Floats v) {
  return {HalfIfNotNegative(v.low), HalfIfNotNegative(v.high)};
}
// The instruction gives its second operand where one is not a number.
THIMBLE_DOT_INLINE Floats AtLeast(Floats bound, Floats v) {
  return {_mm256_max_ps(bound.low, v.low), _mm256_max_ps(bound.high, v.high)};
}
THIMBLE_DOT_INLINE __m256 HalfIfPositive(__m256 u, __m256 v) {
  return _mm256_and_ps(_mm256_cmp_ps(u, _mm256_setzero_ps(), _CMP_GT_OQ), v);
}
THIMBLE_DOT_INLINE Floats IfPositive(Floats u, Floats v) {
  return {HalfIfPositive(u.low, v.low), HalfIfPositive(u.high, v.high)};
}
THIMBLE_DOT_INLINE Words Masked(LaneMask mask, Words v) {
  return {_mm256_and_si256(v.low, mask.low),
          _mm256_and_si256(v.high, mask.high)};
}
THIMBLE_DOT_INLINE Floats MaskedMulAdd(LaneMask mask, Floats a, Floats b,
                                       Floats c) {
  return FloatsOf(Masked(mask, WordsOf(FusedMulAdd(a, b, c))));
}

THIMBLE_DOT_INLINE Floats Even(Words v) {
  return FloatsOf(
      {_mm256_slli_epi32(v.low, 16), _mm256_slli_epi32(v.high, 16)});
}
THIMBLE_DOT_INLINE Floats Odd(Words v) {
  const __m256i mask = SetHalf(0xFFFF0000u);
  return FloatsOf(
      {_mm256_and_si256(v.low, mask), _mm256_and_si256(v.high, mask)});
}

// Packs within quarters: the middle two change places.
THIMBLE_DOT_INLINE __m256i PackedLow(__m256i low, __m256i high) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
}
THIMBLE_DOT_INLINE __m256i LowOf(__m256i v) {
  return _mm256_and_si256(v, SetHalf(0xFFFFu));
}
THIMBLE_DOT_INLINE Words PackEven(Words low, Words high) {
  return {PackedLow(LowOf(low.low), LowOf(low.high)),
          PackedLow(LowOf(high.low), LowOf(high.high))};
}
THIMBLE_DOT_INLINE __m256i HighOf(__m256i v) {
  return _mm256_srli_epi32(v, 16);
}
THIMBLE_DOT_INLINE Words PackOdd(Words low, Words high) {
  return {PackedLow(HighOf(low.low), HighOf(low.high)),
          PackedLow(HighOf(high.low), HighOf(high.high))};
}

THIMBLE_DOT_INLINE Floats Dot(Floats sum, Words x, Words w) {
  const Floats first = FusedMulAdd(Odd(x), Odd(w), sum);
  return FusedMulAdd(Even(x), Even(w), first);
}
THIMBLE_DOT_INLINE Floats DotPair(Floats sum, Words x, const uint32_t* pair) {
  return Dot(sum, x, SetPair(pair));
}

// The upper half of each lane is the value in bf16.
THIMBLE_DOT_INLINE __m256i RoundedHalf(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), SetHalf(1));
  __m256i rounded = _mm256_add_epi32(bits, SetHalf(0x7FFFu));
  rounded = _mm256_add_epi32(rounded, odd);
  const __m256i magnitude = _mm256_and_si256(bits, SetHalf(0x7FFFFFFFu));
  const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, SetHalf(0x7F800000u));
  rounded = _mm256_blendv_epi8(
      rounded, _mm256_or_si256(bits, SetHalf(0x400000u)), is_nan);
  const __m256i is_denormal =
      _mm256_cmpgt_epi32(SetHalf(0x00800000u), magnitude);
  const __m256i sign = _mm256_and_si256(bits, SetHalf(0x80000000u));
  return _mm256_blendv_epi8(rounded, sign, is_denormal);
}
THIMBLE_DOT_INLINE __m256i PackedHalf(Floats v) {
  return PackedLow(HighOf(RoundedHalf(v.low)), HighOf(RoundedHalf(v.high)));
}
THIMBLE_DOT_INLINE Words Round(Floats low, Floats high) {
  return {PackedHalf(low), PackedHalf(high)};
}
THIMBLE_DOT_INLINE __m256i ZippedHalf(__m256 low, __m256 high) {
  return _mm256_blend_epi16(_mm256_srli_epi32(RoundedHalf(low), 16),
                            RoundedHalf(high), 0xAA);
}
THIMBLE_DOT_INLINE Words Zip(Floats low, Floats high) {
  return {ZippedHalf(low.low, high.low), ZippedHalf(low.high, high.high)};
}

THIMBLE_DOT_INLINE Words ZipHalves(Floats even, Floats odd) {
  const __m256i e = PackedHalf(even), o = PackedHalf(odd);
  const __m128i e0 = _mm256_castsi256_si128(e);
  const __m128i e1 = _mm256_extracti128_si256(e, 1);
  const __m128i o0 = _mm256_castsi256_si128(o);
  const __m128i o1 = _mm256_extracti128_si256(o, 1);
  const __m128i e_low = _mm_unpacklo_epi16(e0, e1);
  const __m128i e_high = _mm_unpackhi_epi16(e0, e1);
  const __m128i o_low = _mm_unpacklo_epi16(o0, o1);
  const __m128i o_high = _mm_unpackhi_epi16(o0, o1);
  return {_mm256_set_m128i(_mm_unpackhi_epi32(e_low, o_low),
                           _mm_unpacklo_epi32(e_low, o_low)),
          _mm256_set_m128i(_mm_unpackhi_epi32(e_high, o_high),
                           _mm_unpacklo_epi32(e_high, o_high))};
}

THIMBLE_DOT_INLINE void StoreInterleavedHalf(__m256 even, __m256 odd,
                                             float* to) {
  const __m256 a = _mm256_unpacklo_ps(even, odd);
  const __m256 b = _mm256_unpackhi_ps(even, odd);
  _mm256_storeu_ps(to, _mm256_permute2f128_ps(a, b, 0x20));
  _mm256_storeu_ps(to + 8, _mm256_permute2f128_ps(a, b, 0x31));
}
THIMBLE_DOT_INLINE void StoreInterleaved(Floats even, Floats odd, float* low,
                                         float* high) {
  StoreInterleavedHalf(even.low, odd.low, low);
  StoreInterleavedHalf(even.high, odd.high, high);
}

// Eight lanes whose neighbours in front (behind) are the lanes of `before`
// (`behind`), moved by one.
THIMBLE_DOT_INLINE __m256i MoveUp(__m256i v, __m256i before) {
  const __m256i across = _mm256_permute2x128_si256(before, v, 0x21);
  return _mm256_alignr_epi8(v, across, 12);
}
THIMBLE_DOT_INLINE __m256i MoveDown(__m256i v, __m256i behind) {
  const __m256i across = _mm256_permute2x128_si256(v, behind, 0x21);
  return _mm256_alignr_epi8(across, v, 4);
}
template <int kRow>
THIMBLE_DOT_INLINE Floats FromBefore(Floats v) {
  const Words w = WordsOf(v);
  const __m256i zero = _mm256_setzero_si256();
  if constexpr (kRow == 16) {
    return FloatsOf({MoveUp(w.low, zero), MoveUp(w.high, w.low)});
  } else if constexpr (kRow == 8) {
    return FloatsOf({MoveUp(w.low, zero), MoveUp(w.high, zero)});
  } else {
    return FloatsOf(
        {_mm256_slli_si256(w.low, 4), _mm256_slli_si256(w.high, 4)});
  }
}
template <int kRow>
THIMBLE_DOT_INLINE Floats FromBehind(Floats v) {
  const Words w = WordsOf(v);
  const __m256i zero = _mm256_setzero_si256();
  if constexpr (kRow == 16) {
    return FloatsOf({MoveDown(w.low, w.high), MoveDown(w.high, zero)});
  } else if constexpr (kRow == 8) {
    return FloatsOf({MoveDown(w.low, zero), MoveDown(w.high, zero)});
  } else {
    return FloatsOf(
        {_mm256_srli_si256(w.low, 4), _mm256_srli_si256(w.high, 4)});
  }
}

THIMBLE_DOT_INLINE void Transpose8(__m256i (&r)[8]) {
  __m256i t[8];
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
  }
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 8; i += 4) {
    r[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 4; ++i) {
    const __m256i low = r[i], high = r[i + 4];
    r[i] = _mm256_permute2x128_si256(low, high, 0x20);
    r[i + 4] = _mm256_permute2x128_si256(low, high, 0x31);
  }
}
THIMBLE_DOT_INLINE void Transpose16(Words (&r)[16]) {
  __m256i a[8], b[8], c[8], d[8];  // a b above c d
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 8; ++i) {
    a[i] = r[i].low;
    b[i] = r[i].high;
    c[i] = r[i + 8].low;
    d[i] = r[i + 8].high;
  }
  Transpose8(a);
  Transpose8(b);
  Transpose8(c);
  Transpose8(d);
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 8; ++i) {
    r[i] = {a[i], c[i]};
    r[i + 8] = {b[i], d[i]};
  }
}

THIMBLE_DOT_INLINE void TransposePairs4(__m256i (&r)[4]) {
  const __m256i t0 = _mm256_unpacklo_epi64(r[0], r[1]);
  const __m256i t1 = _mm256_unpackhi_epi64(r[0], r[1]);
  const __m256i t2 = _mm256_unpacklo_epi64(r[2], r[3]);
  const __m256i t3 = _mm256_unpackhi_epi64(r[2], r[3]);
  r[0] = _mm256_permute2x128_si256(t0, t2, 0x20);
  r[1] = _mm256_permute2x128_si256(t1, t3, 0x20);
  r[2] = _mm256_permute2x128_si256(t0, t2, 0x31);
  r[3] = _mm256_permute2x128_si256(t1, t3, 0x31);
}
THIMBLE_DOT_INLINE void TransposePairs8(Words (&r)[8]) {
  __m256i a[4], b[4], c[4], d[4];  // a b above c d
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 4; ++i) {
    a[i] = r[i].low;
    b[i] = r[i].high;
    c[i] = r[i + 4].low;
    d[i] = r[i + 4].high;
  }
  TransposePairs4(a);
  TransposePairs4(b);
  TransposePairs4(c);
  TransposePairs4(d);
  THIMBLE_DOT_UNROLL
  for (int64_t i = 0; i < 4; ++i) {
    r[i] = {a[i], c[i]};
    r[i + 4] = {b[i], d[i]};
  }
}
