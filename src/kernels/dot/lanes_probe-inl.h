// SPDX-License-Identifier: Apache-2.0
//
// Primitives of lanes-inl.h as functions of arrays of 16, for their test.
// Included once per build.
#include "kernels/dot/flush.h"
#include "kernels/dot/lanes-inl.h"

THIMBLE_DOT_BEGIN

inline void ProbeDot(const float* sum, const uint32_t* x, const uint32_t* w,
                     float* to) {
  const FlushDenormals flush;
  Store(Dot(LoadFloats(sum), LoadWords(x), LoadWords(w)), to);
}
inline void ProbePairDot(const float* sum, const uint32_t* x,
                         const uint32_t* pair, float* to) {
  const FlushDenormals flush;
  const Floats by_words = Dot(LoadFloats(sum), LoadWords(x), SetPair(pair));
  const Floats by_pair = DotPair(LoadFloats(sum), LoadWords(x), pair);
  Store(by_words, to);
  Store(by_pair, to + 16);
}
inline void ProbeRound(const float* low, const float* high, uint16_t* packed,
                       uint16_t* zipped, uint16_t* halves) {
  const FlushDenormals flush;
  Store(Round(LoadFloats(low), LoadFloats(high)), packed);
  Store(Zip(LoadFloats(low), LoadFloats(high)), zipped);
  Store(ZipHalves(LoadFloats(low), LoadFloats(high)), halves);
}
// Lower and upper halves of the words of two vectors, as they are.
inline void ProbePacks(const uint32_t* low, const uint32_t* high,
                       uint16_t (*to)[32]) {
  Store(PackEven(LoadWords(low), LoadWords(high)), to[0]);
  Store(PackOdd(LoadWords(low), LoadWords(high)), to[1]);
}
inline void ProbeHalves(const uint32_t* words, float* even, float* odd) {
  Store(Even(LoadWords(words)), even);
  Store(Odd(LoadWords(words)), odd);
}
// Rows of 16, 8 and 4, moved both ways, and the values without the negative.
inline void ProbeMoves(const float* v, float (*to)[16]) {
  const Floats from = LoadFloats(v);
  Store(FromBefore<16>(from), to[0]);
  Store(FromBefore<8>(from), to[1]);
  Store(FromBefore<4>(from), to[2]);
  Store(FromBehind<16>(from), to[3]);
  Store(FromBehind<8>(from), to[4]);
  Store(FromBehind<4>(from), to[5]);
  Store(ZeroIfNegative(from), to[6]);
  Store(FusedMulAdd(from, from, SetFloats(-1.0f)), to[7]);
  Store(AtLeast(SetFloats(4.0f), from), to[8]);
  const Floats one = SetFloats(1.0f);
  Store(MaskedMulAdd(MaskOf(0xEEEEu), from, one, one), to[9]);
  StoreInterleaved(from, SetFloats(0.5f), to[10], to[11]);
  Store(IfPositive(from, one), to[12]);
}
// Pieces of 32 and 16 bytes in reverse order, by loads and by stores.
inline void ProbePieces(const uint32_t* from, uint32_t (*to)[16]) {
  Store(LoadHalves(from + 8, from), to[0]);
  StoreHalves(LoadWords(from), to[1] + 8, to[1]);
  Store(LoadQuarters(from + 12, from + 8, from + 4, from), to[2]);
  StoreQuarters(LoadWords(from), to[3] + 12, to[3] + 8, to[3] + 4, to[3]);
  Store(LoadNineWords(from + 7), to[4]);
}
// Every second quarter of two vectors, of which the masks leave out parts.
inline void ProbeQuarters(const uint32_t* from, uint32_t first, uint32_t last,
                          uint32_t (*to)[16]) {
  Store(LoadEvenQuarters(from, MaskOf(first), MaskOf(last)), to[0]);
  Store(LoadOddQuarters(from, MaskOf(first), MaskOf(last)), to[1]);
}
// 16 vectors; eight.
inline void ProbeTransposes(uint32_t (*words)[16], uint32_t (*pairs)[16]) {
  Words r[16], p[8];
  for (int i = 0; i < 16; ++i) r[i] = LoadWords(words[i]);
  for (int i = 0; i < 8; ++i) p[i] = LoadWords(pairs[i]);
  Transpose16(r);
  TransposePairs8(p);
  for (int i = 0; i < 16; ++i) Store(r[i], words[i]);
  for (int i = 0; i < 8; ++i) Store(p[i], pairs[i]);
}

THIMBLE_DOT_END
