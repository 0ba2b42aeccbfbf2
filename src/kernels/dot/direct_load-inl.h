// SPDX-License-Identifier: Apache-2.0
//
// What direct convolutions of bf16 pairs read (direct.h): a tile of the input,
// and the weights of a block of outputs. Included once per build, by way of
// foreach_build.h; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_DOT_DIRECT_LOAD_INL_H_) == \
    defined(THIMBLE_DOT_TOGGLE)
#ifdef THIMBLE_KERNELS_DOT_DIRECT_LOAD_INL_H_
#undef THIMBLE_KERNELS_DOT_DIRECT_LOAD_INL_H_
#else
#define THIMBLE_KERNELS_DOT_DIRECT_LOAD_INL_H_
#endif

#include "kernels/dot/halves-inl.h"
#include "kernels/dot/lanes-inl.h"
#include "kernels/dot/source-inl.h"
#include "kernels/dot/strided_rows-inl.h"

THIMBLE_DOT_BEGIN
namespace {

using dot::DirectPass;

// The list's positions of one pair, `rows` and what taps reach behind them.
THIMBLE_DOT_INLINE void LoadPair(const DirectPass& pass,
                                 const Conv2dInput& input,
                                 const dot::PieceList& list, int64_t image,
                                 int64_t pair, int64_t rows, uint32_t* to) {
  const dot::Planes& planes = pass.planes;
  const int64_t pixels = planes.src_height * planes.src_width;
  const SourceRow low(input, 2 * pair);
  const bool whole = 2 * pair + 1 < pass.channels;
  const SourceRow high(input, 2 * pair + (whole ? 1 : 0));
  const uint16_t* low_at =
      low.data + (image * pass.channels + 2 * pair) * pixels;
  const uint16_t* high_at = whole ? low_at + pixels : nullptr;
  for (int64_t plane = list.first; plane < list.first + list.count; ++plane) {
    const int64_t a = plane >= planes.count_w ? 1 : 0;
    const int64_t count =
        HWY_MIN((rows + planes.halo_of(a)) * planes.cols - list.begin,
                list.vectors * kLanes);
    uint32_t* plane_to =
        to + planes.plane_at(a, plane - a * planes.count_w) + list.begin;
    if (planes.step == 1) {
      LoadPairs<1>(list, plane, low, low_at, high, high_at, count, plane_to);
    } else {
      LoadPairs<2>(list, plane, low, low_at, high, high_at, count, plane_to);
    }
  }
}

// The same of all planes, where they are made of whole rows.
THIMBLE_DOT_INLINE void LoadStridedPair(const DirectPass& pass,
                                        const StridedRows& source,
                                        const Conv2dInput& input, int64_t image,
                                        int64_t pair, int64_t first_row,
                                        int64_t rows, uint32_t* to) {
  const dot::Planes& planes = pass.planes;
  const int64_t pixels = planes.src_height * planes.src_width;
  const bool whole = 2 * pair + 1 < pass.channels;
  const SourceRow low(input, 2 * pair);
  const SourceRow high(input, 2 * pair + (whole ? 1 : 0));
  const uint16_t* low_at =
      low.data + (image * pass.channels + 2 * pair) * pixels;
  for (int64_t a = 0; a < planes.count_h; ++a) {
    source.LoadPairs(a, first_row, rows + planes.halo_of(a), low, low_at, high,
                     whole ? low_at + pixels : nullptr, planes.plane(a),
                     to + planes.plane_at(a, 0));
  }
}

}  // namespace

// Rows of positions [first_row, first_row + rows) of `images` images from
// `image` on.
void LoadDirectTile(const DirectPass& pass, const Conv2dInput& input,
                    int64_t image, int64_t images, int64_t first_row,
                    int64_t rows, uint32_t* tile) {
  const int64_t words = pass.pair_words();
  if (StridedRows::Takes(pass.planes)) {
    const StridedRows source(pass.planes);
    for (int64_t i = 0; i < images; ++i) {
      for (int64_t p = 0; p < pass.pairs(); ++p) {
        LoadStridedPair(pass, source, input, image + i, p, first_row, rows,
                        tile + i * pass.image_words() + p * words);
      }
    }
    return;
  }
  dot::ForPieceLists(pass.planes, first_row, rows,
                     [&](const dot::PieceList& list) {
                       for (int64_t i = 0; i < images; ++i) {
                         for (int64_t p = 0; p < pass.pairs(); ++p) {
                           LoadPair(pass, input, list, image + i, p, rows,
                                    tile + i * pass.image_words() + p * words);
                         }
                       }
                     });
}

// [pair][output][tap], with zeros for outputs up to `all`.
void PackGradWeights(const DirectPass& pass, const uint16_t* weights,
                     int64_t first, int64_t outputs, int64_t all,
                     uint32_t* to) {
  const int64_t taps = pass.taps();
  const int64_t channel = pass.outputs * taps;
  const int64_t words = outputs * taps;
  for (int64_t p = 0; p < pass.pairs(); ++p, to += all * taps) {
    const uint16_t* low = weights + 2 * p * channel + first * taps;
    const bool whole = 2 * p + 1 < pass.channels;
    int64_t i = 0;
    for (; whole && i + 2 * kLanes <= words; i += 2 * kLanes) {
      ZipWholeLines(low + i, low + channel + i, to + i);
    }
    for (; i < all * taps; i += kLanes) {
      Store(ZipLines(low + i, whole ? low + channel + i : nullptr,
                     static_cast<size_t>(HWY_MAX(words - i, int64_t{0}))),
            to + i);
    }
  }
}

// Weights of outputs [first, first + outputs), and zeros for as many as a
// register tile has more: [output][pair][tap] forward, or [pair][output][tap].
void PackDirectWeights(const DirectPass& pass, const uint16_t* weights,
                       int64_t first, int64_t outputs, uint32_t* to) {
  const int64_t taps = pass.taps();
  const int64_t all = conv::RoundUp(outputs, dot::kTileOutputs);
  const int64_t row = pass.pairs() * taps;
  if (!pass.forward) {
    PackGradWeights(pass, weights, first, outputs, all, to);
    return;
  }
  const PairOrder joined(static_cast<size_t>(taps));
  for (int64_t o = 0; o < outputs; ++o) {
    const uint16_t* from = weights + (first + o) * pass.channels * taps;
    uint32_t* words = to + o * row;
    if (taps == 1) {  // pairs are words already
      for (int64_t p = 0; p < row; p += kLanes) {
        Store(LoadFirstPairs(from + 2 * p,
                             static_cast<size_t>(pass.channels - 2 * p)),
              words + p);
      }
      continue;
    }
#if !THIMBLE_DOT_IS_AVX2
    if (taps == NineTerms::kTerms) {
      JoinNineTerms(from, pass.channels * taps, row, words);
      continue;
    }
#endif
    if (taps <= kLanes) {
      for (int64_t p = 0; p < pass.pairs(); ++p, words += taps) {
        const int64_t left = (pass.channels - 2 * p) * taps;
        Store(LoadJoined(joined, from + 2 * p * taps,
                         static_cast<size_t>(HWY_MIN(left, 2 * taps))),
              words);
      }
      continue;
    }
    for (int64_t p = 0; p < pass.pairs(); ++p, words += taps) {
      const uint16_t* low = from + 2 * p * taps;
      const bool whole = 2 * p + 1 < pass.channels;
      for (int64_t t = 0; t < taps; t += kLanes) {
        Store(ZipLines(low + t, whole ? low + taps + t : nullptr,
                       static_cast<size_t>(taps - t)),
              words + t);
      }
    }
  }
  std::memset(to + outputs * row, 0,
              static_cast<size_t>((all - outputs) * row) * sizeof(uint32_t));
}

THIMBLE_DOT_END

#endif  // per-build include guard
