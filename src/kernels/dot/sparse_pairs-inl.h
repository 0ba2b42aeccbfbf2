// SPDX-License-Identifier: Apache-2.0
//
// Pairs of kept weights from their index by output (sparse.h), a block of them
// at a time. Included once per build, by way of foreach_build.h; hence no
// `#pragma once`.
#include "kernels/dot/sparse_rows-inl.h"

THIMBLE_DOT_BEGIN
namespace {

// One output's records, chunk by chunk, from pair `pair` on. Returns where the
// next one's begin.
inline uint32_t PutOutput(const SparsePass& pass, const RecordMaker& maker,
                          const RowEntries& entries,
                          const SparseScratch& scratch, uint32_t* starts,
                          uint32_t pair) {
  int64_t i = 0;
  for (int64_t k = 0; k < pass.chunks(); ++k) {
    const int64_t base = k * pass.chunk * pass.tap_count();
    const int64_t limit = base + pass.chunk * pass.tap_count();
    const int64_t end =
        k + 1 == pass.chunks() ? entries.count : FirstFrom(entries, i, limit);
    uint32_t* lists[dot::kSlots];
    for (int64_t s = 0; s < dot::kSlots; ++s) {
      lists[s] = scratch.lists + s * pass.list_records();
    }
    AppendRecords(maker, entries, i, end, base, lists);
    i = end;
    for (int64_t s = 0; s < dot::kSlots; ++s) {
      const uint32_t* list = scratch.lists + s * pass.list_records();
      int64_t count = lists[s] - list;
      if (count % 2 != 0) *lists[s] = ZeroRecord(pass, s);
      count = (count + 1) / 2;
      *starts++ = pair;
      for (int64_t p = 0; p < count; p += kLanes / 2) {
        Store(SwapMiddles(LoadWords(list + 2 * p)),
              scratch.records + 2 * (pair + p));
      }
      pair += static_cast<uint32_t>(count);
    }
  }
  *starts = pair;
  return pair;
}

}  // namespace

// Pairs of outputs [output, end), as many of them as fit. Returns how many.
// `first`: of the matrix's entries, those of the row of `output`.
int64_t UnpackRecords(const SparsePass& pass, const SparseWeights& weights,
                      int64_t output, int64_t end, int64_t first,
                      const SparseScratch& scratch) {
  const WeightBlock& block = weights.pattern.block;
  const RowReader reader(weights, pass.tap_count(), scratch);
  const RecordMaker maker(
      pass, pass.tile.lines * (dot::kLineBytes / dot::kOffsetUnit));
  uint32_t pair = 0;
  int64_t o = output;
  for (; o < end && o - output < pass.block; ++o) {
    const int64_t kept = weights.pattern.counts[o / block.outputs];
    const int64_t most = kept * block.inputs + pass.chunks() * pass.slots();
    if (2 * pair + most > pass.records) break;
    int64_t read = 0;
    const RowEntries entries = reader.Read(o, first, 0, 0, pass.channels, read);
    pair = PutOutput(
        pass, maker, entries, scratch,
        scratch.starts + (o - output) * pass.chunks() * pass.slots(), pair);
    if ((o + 1) % block.outputs == 0) first += kept;
  }
  return o - output;
}

THIMBLE_DOT_END
