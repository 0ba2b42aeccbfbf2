// SPDX-License-Identifier: Apache-2.0
//
// The gradient of sparse weights from bf16 pairs (sparse_weight.h). Included
// once per build, by way of foreach_build.h; hence no `#pragma once`.
#include "kernels/dot/sparse_records-inl.h"
#include "kernels/dot/sparse_tile-inl.h"

THIMBLE_DOT_BEGIN
namespace {

using dot::KeptRange;
using dot::SparseWeightPass;
using dot::SparseWeightScratch;

// The record that fills up a list: lines of zeros, and the place behind all.
inline uint32_t FillRecord(const SparseWeightPass& pass, int64_t slot) {
  return ZeroRecord(pass.tiles, slot) | static_cast<uint32_t>(pass.records)
                                            << 16;
}

// Sixteen records: their offsets, their places.
THIMBLE_DOT_INLINE void SplitRecords(const uint32_t* records, uint16_t* offsets,
                                     uint16_t* places) {
#if THIMBLE_DOT_IS_AVX2
  for (int64_t i = 0; i < kLanes; ++i) {
    offsets[i] = static_cast<uint16_t>(records[i]);
    places[i] = static_cast<uint16_t>(records[i] >> 16);
  }
#else
  const Words v = LoadWords(records);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(offsets),
                      _mm512_cvtepi32_epi16(v));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(places),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(v, 16)));
#endif
}

// One output's records, from `at` on. Returns where the next one's begin.
inline uint32_t PutPlaces(const SparseWeightPass& pass,
                          const RecordMaker& maker, const RowEntries& entries,
                          const SparseWeightScratch& scratch, uint32_t* starts,
                          uint32_t at) {
  const SparsePass& tiles = pass.tiles;
  const int64_t columns = tiles.chunk * tiles.tap_count();
  int64_t i = 0;
  for (int64_t k = 0; k < tiles.chunks(); ++k) {
    const int64_t end = k + 1 == tiles.chunks()
                            ? entries.count
                            : FirstFrom(entries, i, (k + 1) * columns);
    uint32_t* lists[dot::kSlots];
    for (int64_t s = 0; s < dot::kSlots; ++s) {
      lists[s] = scratch.lists + s * tiles.list_records();
    }
    AppendRecords(maker, entries, i, end, k * columns, lists);
    i = end;
    for (int64_t s = 0; s < dot::kSlots; ++s) {
      const uint32_t* list = scratch.lists + s * tiles.list_records();
      int64_t count = lists[s] - list;
      for (; count % dot::kListUnit != 0; ++count) {
        *lists[s]++ = FillRecord(pass, s);
      }
      *starts++ = at;
      for (int64_t p = 0; p < count; p += kLanes) {
        SplitRecords(list + p, scratch.offsets + at + p,
                     scratch.places + at + p);
      }
      at += static_cast<uint32_t>(count);
    }
  }
  *starts = at;
  return at;
}

// Entries [begin, end) of a row of the index for the output that is number `o`
// of the row's; their values are their places, from that of entry `begin` on.
inline RowEntries ReadPlaces(const SparseWeightPass& pass,
                             const Pattern& pattern, int64_t begin, int64_t end,
                             int64_t o, int64_t place,
                             const SparseWeightScratch& scratch) {
  const WeightBlock& block = pattern.block;
  const int64_t taps = pass.tiles.tap_count();
  uint16_t* columns = scratch.columns;
  const int64_t count = end - begin;
  if (block.values() == 1) {
    for (int64_t i = 0; i < count; ++i) {
      scratch.row_places[i] = static_cast<uint16_t>(place + i);
    }
    return {columns + begin, scratch.row_places, count};
  }
  std::memmove(columns, columns + begin,
               static_cast<size_t>(count) * sizeof(uint16_t));
  // From the last one on, so that columns are still there.
  for (int64_t i = count - 1; i >= 0; --i) {
    const int64_t column =
        columns[i] / taps * block.inputs * taps + columns[i] % taps;
    for (int64_t j = block.inputs - 1; j >= 0; --j) {
      const int64_t to = i * block.inputs + j;
      columns[to] = static_cast<uint16_t>(column + j * taps);
      scratch.row_places[to] = static_cast<uint16_t>(
          place + i * block.values() + o * block.inputs + j);
    }
  }
  return {columns, scratch.row_places, count * block.inputs};
}

// The four sums of the lanes of four vectors.
#if !THIMBLE_DOT_IS_AVX2
THIMBLE_DOT_INLINE Floats QuarterSums(const Floats (&v)[8], int from) {
  const auto* a = &v[from];
  const Floats low = _mm512_add_ps(_mm512_unpacklo_ps(a[0], a[1]),
                                   _mm512_unpackhi_ps(a[0], a[1]));
  const Floats high = _mm512_add_ps(_mm512_unpacklo_ps(a[2], a[3]),
                                    _mm512_unpackhi_ps(a[2], a[3]));
  const __m512d l = _mm512_castps_pd(low), h = _mm512_castps_pd(high);
  return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(l, h)),
                       _mm512_castpd_ps(_mm512_unpackhi_pd(l, h)));
}
#endif

// Adds to the sums of kJ records, each of whose lines are kV rows.
template <int kJ, int kV>
THIMBLE_DOT_INLINE void AddToSums(const Words (&grad)[kV],
                                  const std::byte* tile,
                                  const uint16_t* offsets, float* sums) {
  const std::byte* at[kJ];
  uint64_t four = 0;
  Floats acc[8];
  THIMBLE_DOT_UNROLL
  for (int j = 0; j < kJ; ++j) {
    if (j % 4 == 0) {
      std::memcpy(&four, offsets + j, sizeof four);
      // Loaded once: parts of it would be loads of their own.
      asm("" : "+r"(four));
    }
    at[j] =
        tile + dot::kOffsetUnit * static_cast<uint16_t>(four >> (j % 4 * 16));
    acc[j] = ZeroFloats();
  }
  THIMBLE_DOT_UNROLL
  for (int v = 0; v < kV; ++v) {
    THIMBLE_DOT_UNROLL
    for (int j = 0; j < kJ; ++j) {
      acc[j] = Dot(acc[j], grad[v], LoadWords(at[j] + v * dot::kLineBytes));
    }
  }
#if THIMBLE_DOT_IS_AVX2
  for (int j = 0; j < kJ; ++j) {
    float l[kLanes], q[4];
    Store(acc[j], l);
    for (int k = 0; k < 4; ++k) {
      q[k] = (l[4 * k] + l[4 * k + 2]) + (l[4 * k + 1] + l[4 * k + 3]);
    }
    sums[j] += (q[0] + q[1]) + (q[2] + q[3]);
  }
#else
  const Floats p = QuarterSums(acc, 0);
  Floats q = p;
  if constexpr (kJ == 8) q = QuarterSums(acc, 4);
  const Floats halves = _mm512_add_ps(_mm512_shuffle_f32x4(p, q, 0x88),
                                      _mm512_shuffle_f32x4(p, q, 0xDD));
  // Of four records each: q[0] + q[1], then q[2] + q[3].
  const Floats rest = _mm512_shuffle_f32x4(halves, halves, 0xB1);
  const Floats all = _mm512_add_ps(halves, rest);
  const __m256 eight =
      _mm512_castps512_ps256(_mm512_shuffle_f32x4(all, all, 0x08));
  if constexpr (kJ == 8) {
    _mm256_storeu_ps(sums, _mm256_add_ps(_mm256_loadu_ps(sums), eight));
  } else {
    _mm_storeu_ps(
        sums, _mm_add_ps(_mm_loadu_ps(sums), _mm256_castps256_ps128(eight)));
  }
#endif
}

// Pixels one behind, or one before, within rows; zeros come in.
struct LineOrder {
  constexpr LineOrder() {
    for (int p = 0; p < 32; ++p) {
      behind[p] = static_cast<uint16_t>(p == 31 ? p : p + 1);
      before[p] = static_cast<uint16_t>(p == 0 ? p : p - 1);
    }
  }
  alignas(64) uint16_t behind[dot::kLinePixels] = {};
  alignas(64) uint16_t before[dot::kLinePixels] = {};
};
constexpr LineOrder kLineOrder;

THIMBLE_DOT_INLINE Words PermutedLine(const void* line, const uint16_t* from,
                                      uint32_t there) {
#if THIMBLE_DOT_IS_AVX2
  uint16_t pixels[dot::kLinePixels], to[dot::kLinePixels];
  std::memcpy(pixels, line, sizeof pixels);
  for (int64_t p = 0; p < dot::kLinePixels; ++p) {
    to[p] = (there >> p & 1) != 0 ? pixels[from[p]] : uint16_t{0};
  }
  return LoadWords(to);
#else
  return _mm512_maskz_permutexvar_epi16(there, LoadWords(from),
                                        LoadWords(line));
#endif
}

THIMBLE_DOT_INLINE Words MovedLine(const SparsePass& tiles, const void* line,
                                   int64_t slot) {
  const uint32_t begins =
      tiles.cols == 8 ? 0x01010101u : (tiles.cols == 16 ? 0x00010001u : 1u);
  if (slot == dot::kSlotBefore) {
    return PermutedLine(line, kLineOrder.behind, ~(begins << (tiles.cols - 1)));
  }
  if (slot == dot::kSlotBehind && tiles.behind_moves) {
    return PermutedLine(line, kLineOrder.before, ~begins);
  }
  return LoadWords(line);
}

template <int kV>
void AddLists(const SparsePass& tiles, const SparseWeightScratch& scratch,
              const uint32_t* starts) {
  for (int64_t s = 0; s < dot::kSlots; ++s) {
    const std::byte* tile =
        scratch.tile +
        tiles.slot_plane[s] * tiles.tile.plane_bytes(tiles.chunk);
    uint32_t i = starts[s];
    const uint32_t end = starts[s + 1];
    if (i == end) continue;
    Words grad[kV];
    THIMBLE_DOT_UNROLL
    for (int v = 0; v < kV; ++v) {
      grad[v] = MovedLine(tiles, scratch.grad + v * dot::kLineBytes, s);
    }
#if !THIMBLE_DOT_IS_AVX2
    for (; i + 8 <= end; i += 8) {
      AddToSums<8, kV>(grad, tile, scratch.offsets + i, scratch.sums + i);
    }
#endif
    for (; i < end; i += dot::kListUnit) {
      AddToSums<dot::kListUnit, kV>(grad, tile, scratch.offsets + i,
                                    scratch.sums + i);
    }
  }
}

}  // namespace

// Records of a range, and zeros for their sums. Returns the outputs that it
// has.
int64_t UnpackPlaces(const SparseWeightPass& pass, const Pattern& pattern,
                     const KeptRange& range,
                     const SparseWeightScratch& scratch) {
  const SparsePass& tiles = pass.tiles;
  const RecordMaker maker(
      tiles, tiles.tile.lines * (dot::kLineBytes / dot::kOffsetUnit));
  const ColumnReader reader(pattern);
  uint32_t at = 0;
  int64_t output = 0;
  int64_t first = range.first;
  for (int64_t row = range.row; first < range.end; ++row) {
    const int64_t count = pattern.counts[row];
    const int64_t begin = HWY_MAX(range.begin - first, int64_t{0});
    const int64_t end = HWY_MIN(range.end - first, count);
    for (int64_t o = 0; o < pattern.block.outputs; ++o, ++output) {
      reader.Read(row, first, 0, 0, pattern.matrix.columns, scratch.columns);
      const RowEntries entries = ReadPlaces(
          pass, pattern, begin, end, o,
          (first + begin - range.begin) * pattern.block.values(), scratch);
      at = PutPlaces(pass, maker, entries, scratch,
                     scratch.starts + output * pass.lists(), at);
    }
    first += count;
  }
  std::memset(scratch.sums, 0, at * sizeof(float));
  return output;
}

// Adds what chunk `k` of a tile, whose x is loaded, gives to the sums of one
// output, which is number `i` of those in scratch.
void AddSparseWeights(const SparseWeightPass& pass,
                      const dot::SparseSegments& segments,
                      const uint16_t* grad_y, int64_t output, int64_t i,
                      int64_t k, const SparseWeightScratch& scratch) {
  const SparsePass& tiles = pass.tiles;
  const uint32_t* starts = scratch.starts + i * pass.lists() + k * dot::kSlots;
  if (starts[0] == starts[dot::kSlots]) return;
  const int64_t pixels = tiles.rows * tiles.cols;
  LineSource source;
  for (int64_t g = 0; g < dot::kMostSegments; ++g) {
    const bool there = g < segments.count;
    source.channel[g] = there ? tiles.cols : 0;
    source.at[g] =
        there ? grad_y + (segments.image[g] * tiles.outputs + output) * pixels +
                    segments.row[g] * tiles.cols
              : kZeroRow;
  }
  for (int64_t r = 0; r < segments.height; ++r) {
    Store(LoadLine(source, tiles.cols, r), scratch.grad + r * dot::kLineBytes);
  }
  if (segments.height == 8) {
    AddLists<8>(tiles, scratch, starts);
  } else {
    AddLists<4>(tiles, scratch, starts);
  }
}

// Sums of all records to their places.
void OrderSums(const SparseWeightPass& pass, int64_t outputs,
               const SparseWeightScratch& scratch) {
  const uint32_t count = scratch.starts[outputs * pass.lists()];
  for (uint32_t i = 0; i < count; ++i) {
    scratch.ordered[scratch.places[i]] = scratch.sums[i];
  }
}

THIMBLE_DOT_END
