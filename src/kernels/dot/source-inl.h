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
  return row.relu ? AtLeast(ZeroFloats(), v) : v;
}

// The lanes of a vector of positions, in their lower halves.
// There are kPieces of them, or `count` where that is zero.
template <int kStep, int kPieces = 0>
THIMBLE_DOT_INLINE Words LoadPieces(const uint16_t* channel,
                                    const dot::RowPiece* pieces,
                                    int64_t count) {
  if constexpr (kPieces != 0) count = kPieces;
  Words v = LoadWhere<kStep>(channel + pieces[0].at, pieces[0].there);
  for (int64_t i = 1; i < count; ++i) {
    v = Or(v, LoadWhere<kStep>(channel + pieces[i].at, pieces[i].there));
  }
  return v;
}

// LoadPairs of two channels as they are stored.
template <int kStep, int kPieces>
THIMBLE_DOT_INLINE void JoinPieces(const dot::RowPiece* pieces,
                                   int64_t per_vector, const uint16_t* low,
                                   const uint16_t* high, int64_t count,
                                   uint32_t* to) {
  const auto load = [&] {
    const Words x = LoadPieces<kStep, kPieces>(low, pieces, per_vector);
    const Words y = LoadPieces<kStep, kPieces>(high, pieces, per_vector);
    pieces += per_vector;
    return JoinHalves(x, y);
  };
  int64_t p = 0;
  for (; p + kLanes <= count; p += kLanes) Store(load(), to + p);
  if (p < count) {
    StoreFirstWords(load(), to + p, static_cast<size_t>(count - p));
  }
}

// Positions of a plane, `count` of them, as pairs of two channels: those of the
// list. The second channel is missing where `high_at` is null.
template <int kStep>
THIMBLE_DOT_INLINE void LoadPairs(const dot::PieceList& list, int64_t plane,
                                  const SourceRow& low, const uint16_t* low_at,
                                  const SourceRow& high,
                                  const uint16_t* high_at, int64_t count,
                                  uint32_t* to) {
  const int64_t per_vector = list.per_vector;
  const dot::RowPiece* pieces = list.PiecesOf(plane);
  if (!low.prologue && high_at != nullptr) {
    if (per_vector == 1) {
      JoinPieces<kStep, 1>(pieces, 1, low_at, high_at, count, to);
    } else if (per_vector == 2) {
      JoinPieces<kStep, 2>(pieces, 2, low_at, high_at, count, to);
    } else {
      JoinPieces<kStep, 0>(pieces, per_vector, low_at, high_at, count, to);
    }
    return;
  }
  const uint16_t* lanes = list.LanesOf(plane);
  for (int64_t p = 0; p < count; p += kLanes, pieces += per_vector) {
    const Words x = LoadPieces<kStep>(low_at, pieces, per_vector);
    Words y = ZeroWords();
    if (high_at != nullptr) y = LoadPieces<kStep>(high_at, pieces, per_vector);
    Words pair = JoinHalves(x, y);
    if (low.prologue) {
      Floats above = ZeroFloats();
      if (high_at != nullptr) above = Activated(high, Even(y));
      pair = KeepLanes(Zip(Activated(low, Even(x)), above), lanes[p / kLanes]);
    }
    StoreFirstWords(pair, to + p, static_cast<size_t>(count - p));
  }
}

// LoadSingles of a channel as it is stored.
template <int kStep, int kPieces>
THIMBLE_DOT_INLINE void CopyPieces(const dot::RowPiece* pieces,
                                   int64_t per_vector, const uint16_t* channel,
                                   int64_t count, uint16_t* to) {
  const auto load = [&] {
    const Words v = LoadPieces<kStep, kPieces>(channel, pieces, per_vector);
    pieces += per_vector;
    return v;
  };
  int64_t p = 0;
  for (; p + 2 * kLanes <= count; p += 2 * kLanes) {
    const Words x = load();
    Store(LowHalves(x, load()), to + p);
  }
  if (p < count) {
    const Words x = load();
    const Words y = p + kLanes < count ? load() : ZeroWords();
    StoreFirstPairs(LowHalves(x, y), to + p, static_cast<size_t>(count - p));
  }
}

// The same of one channel alone.
template <int kStep>
THIMBLE_DOT_INLINE void LoadSingles(const dot::PieceList& list, int64_t plane,
                                    const SourceRow& row,
                                    const uint16_t* channel, int64_t count,
                                    uint16_t* to) {
  const int64_t per_vector = list.per_vector;
  const dot::RowPiece* pieces = list.PiecesOf(plane);
  if (!row.prologue) {
    if (per_vector == 1) {
      CopyPieces<kStep, 1>(pieces, 1, channel, count, to);
    } else if (per_vector == 2) {
      CopyPieces<kStep, 2>(pieces, 2, channel, count, to);
    } else {
      CopyPieces<kStep, 0>(pieces, per_vector, channel, count, to);
    }
    return;
  }
  const uint16_t* lanes = list.LanesOf(plane);
  for (int64_t p = 0; p < count; p += 2 * kLanes) {
    const Words x = LoadPieces<kStep>(channel, pieces, per_vector);
    pieces += per_vector;
    Words y = ZeroWords();
    const bool both = p + kLanes < count;
    if (both) y = LoadPieces<kStep>(channel, pieces, per_vector);
    pieces += per_vector;
    Words above = ZeroWords();
    if (both) {
      above =
          KeepLanes(WordsOf(Activated(row, Even(y))), lanes[p / kLanes + 1]);
    }
    const Words below =
        KeepLanes(WordsOf(Activated(row, Even(x))), lanes[p / kLanes]);
    const Words values = Round(FloatsOf(below), FloatsOf(above));
    StoreFirstPairs(values, to + p, static_cast<size_t>(count - p));
  }
}

}  // namespace
THIMBLE_DOT_END

#endif  // per-build include guard
