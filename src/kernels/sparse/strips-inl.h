// SPDX-License-Identifier: Apache-2.0
//
// Sums over the entries of sparse weights in strips (strip_pass.h). Included
// once per SIMD target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_SPARSE_STRIPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_SPARSE_STRIPS_INL_H_
#undef THIMBLE_KERNELS_SPARSE_STRIPS_INL_H_
#else
#define THIMBLE_KERNELS_SPARSE_STRIPS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/sparse/strip_tile-inl.h"
#include "kernels/sparse/sum_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

// One phase of one row of a sum at one strip, or of two at a part of it.
struct StripSum {
  const sparse::Entry* entries;
  const sparse::Quad* quads;  // instead, for two rows
  const int32_t* starts;      // of the phase's slots
  const sparse::StripPhase* phase;
  const float* tile;       // the first row of positions
  int64_t channel_floats;  // of the tile
  const float* before;     // sums of earlier chunks, or null
  int64_t before_floats;   // from one row's to the other's
  float* out;
  int64_t out_floats;
  int64_t pair_floats;  // as StoreSums has it
};

// Where vector v of a strip is. kSets: the upper half is of the second set,
// which begins one row later.
template <int64_t kV, int64_t kSets>
constexpr int64_t StripVector(int64_t v) {
  return kSets == 2 && v >= kV / 2 ? v + 1 : v;
}

// What several products read. GCC would make it an operand of two of them, and
// load it twice.
HWY_INLINE V LoadShared(const float* from) {
  V v = hn::LoadU(D(), from);
  asm("" : "+v"(v.raw));
  return v;
}

template <int64_t kSets, int64_t kV>
HWY_INLINE void AddSlot(const StripSum& sum, int64_t slot, V (&acc)[1][kV]) {
  const D d;
  const int64_t lanes = LaneCount();
  const sparse::Entry* HWY_RESTRICT entry = sum.entries + sum.starts[slot];
  const sparse::Entry* const last = sum.entries + sum.starts[slot + 1];
  const float* HWY_RESTRICT tile = sum.tile;
  for (; entry != last; ++entry) {
    const float* x = tile + entry->offset;
    const V weight = hn::Set(d, entry->weight);
    THIMBLE_UNROLL
    for (int64_t v = 0; v < kV; ++v) {
      acc[0][v] = hn::MulAdd(
          weight, hn::LoadU(d, x + StripVector<kV, kSets>(v) * lanes),
          acc[0][v]);
    }
  }
}

// Half as many loads as multiply-adds. A row's sum takes a quad's first
// channel, then the second one, as entries of one weight would be.
template <int64_t kSets, int64_t kV>
HWY_INLINE void AddSlot(const StripSum& sum, int64_t slot, V (&acc)[2][kV]) {
  static_assert(kSets == 1);
  const D d;
  const int64_t lanes = LaneCount();
  const sparse::Quad* HWY_RESTRICT quad = sum.quads + sum.starts[slot];
  const sparse::Quad* const last = sum.quads + sum.starts[slot + 1];
  const float* HWY_RESTRICT tile = sum.tile;
  const int64_t channel_floats = sum.channel_floats;
  for (; quad != last; ++quad) {
    const float* x = tile + quad->offset;
    const float* y = x + channel_floats;
    const V of_x0 = hn::Set(d, quad->weights[0]);
    const V of_y0 = hn::Set(d, quad->weights[1]);
    const V of_x1 = hn::Set(d, quad->weights[2]);
    const V of_y1 = hn::Set(d, quad->weights[3]);
    THIMBLE_UNROLL
    for (int64_t v = 0; v < kV; ++v) {
      const V first = LoadShared(x + v * lanes);
      const V second = LoadShared(y + v * lanes);
      acc[0][v] = hn::MulAdd(of_x0, first, acc[0][v]);
      acc[1][v] = hn::MulAdd(of_x1, first, acc[1][v]);
      acc[0][v] = hn::MulAdd(of_y0, second, acc[0][v]);
      acc[1][v] = hn::MulAdd(of_y1, second, acc[1][v]);
    }
  }
}

// kO rows at kV vectors of positions, rows of kRow vectors. A group that moves
// is summed up alone, while what there was before is put aside.
template <int64_t kO, int64_t kV, int64_t kRow, int64_t kSets = 1>
void SumStrip(const StripSum& sum, const Mover& mover) {
  const D d;
  const int64_t lanes = LaneCount();
  HWY_ALIGN float aside[kO * kV * hn::MaxLanes(d)];
  V acc[kO][kV];
  THIMBLE_UNROLL
  for (int64_t i = 0; i < kO * kV; ++i) acc[i / kV][i % kV] = hn::Zero(d);
  const sparse::StripPhase& phase = *sum.phase;
  for (int64_t slot = 0; slot < phase.count; ++slot) {
    const int64_t move = phase.moves[slot];
    const bool put_aside = move != 0 && slot > 0;
    if (put_aside) {
      THIMBLE_UNROLL
      for (int64_t i = 0; i < kO * kV; ++i) {
        hn::Store(acc[i / kV][i % kV], d, aside + i * lanes);
        acc[i / kV][i % kV] = hn::Zero(d);
      }
    }
    AddSlot<kSets>(sum, slot, acc);
    if (move > 0) {
      MoveGroup<1, kO, kV, kRow>(mover, acc);
    } else if (move < 0) {
      MoveGroup<-1, kO, kV, kRow>(mover, acc);
    }
    if (put_aside) {
      THIMBLE_UNROLL
      for (int64_t i = 0; i < kO * kV; ++i) {
        V& at = acc[i / kV][i % kV];
        at = hn::Add(at, hn::Load(d, aside + i * lanes));
      }
    }
  }
  if (sum.before != nullptr) {
    THIMBLE_UNROLL
    for (int64_t i = 0; i < kO * kV; ++i) {
      const float* from = sum.before + i / kV * sum.before_floats;
      V& at = acc[i / kV][i % kV];
      at = hn::Add(at, hn::LoadU(d, from + i % kV * lanes));
    }
  }
  THIMBLE_UNROLL
  for (int64_t o = 0; o < kO; ++o) {
    StoreSums<kV>(acc[o], sum.pair_floats, sum.out + o * sum.out_floats);
  }
}

// Vectors of positions at which two rows' sums fill the registers.
#if HWY_TARGET == HWY_AVX3
constexpr int64_t kPartVectors = 8;
#else
constexpr int64_t kPartVectors = 4;
#endif

using StripFunction = void (*)(const StripSum&, const Mover&);

// For tiles that hold `sets` sets.
StripFunction ChooseStrip(const sparse::StripTile& tile, int64_t sets,
                          int64_t side) {
  const int64_t row = tile.row_floats / LaneCount();
#if HWY_TARGET == HWY_AVX3
  if (side == 2) {
    return row == 2 ? &SumStrip<2, kPartVectors, 2>
                    : &SumStrip<2, kPartVectors, 1>;
  }
  if (tile.sets == 2) {
    return sets == 2 ? &SumStrip<1, 16, 1, 2> : &SumStrip<1, 8, 1>;
  }
  if (tile.vectors == 16) {
    return row == 2 ? &SumStrip<1, 16, 2> : &SumStrip<1, 16, 1>;
  }
  return row == 2 ? &SumStrip<1, 8, 2> : &SumStrip<1, 8, 1>;
#else
  (void)sets;
  if (side == 2) {
    return row == 4   ? &SumStrip<2, kPartVectors, 4>
           : row == 2 ? &SumStrip<2, kPartVectors, 2>
                      : &SumStrip<2, kPartVectors, 1>;
  }
  return row == 4   ? &SumStrip<1, 8, 4>
         : row == 2 ? &SumStrip<1, 8, 2>
                    : &SumStrip<1, 8, 1>;
#endif
}

// The fast way (SumRows).
class StripWay {
 public:
  StripWay(const sparse::StripPass& pass, const sparse::SumCall& call,
           float* scratch)
      : pass_(pass),
        tile_(pass.tile),
        call_(call),
        mover_(pass.tile.grouped.width) {
    values_ = scratch + pass.plan.Floats();
    sums_ = values_ + pass.tile_floats();
    out_ = sums_ + pass.sum_floats();
    line_ = out_ + pass.out_floats();
    partials_ = reinterpret_cast<conv::Partial*>(line_ + pass.line_floats());
    entries_ = sparse::EntryWork(pass.plan, scratch, values_);
    sparse::ListStripSlots(tile_, phases_, entries_.places);
  }

  static int64_t StepOf(const sparse::StripPass& pass) {
    return pass.tile.images();
  }
  int64_t step() const { return tile_.images(); }
  int64_t tiles() const { return tile_.tiles(); }
  const sparse::EntryPlan& plan() const { return pass_.plan; }
  const sparse::EntryWork& entries() const { return entries_; }
  conv::Partial* partials() const { return partials_; }

  void Load(int64_t image, int64_t images, int64_t tile, int64_t chunk) {
    place_.image = image;
    place_.images = images;
    place_.first_row = tile * tile_.rows();
    place_.rows =
        HWY_MIN(tile_.rows(), tile_.grouped.height - place_.first_row);
    place_.channel = chunk * plan().chunk;
    place_.channels =
        HWY_MIN(plan().chunk, plan().sides.channels - place_.channel);
    LoadStrips(tile_, call_.input, place_, values_);
    const int64_t sets = conv::CeilDiv(images, tile_.pair);
    sum_strip_ = ChooseStrip(tile_, sets, plan().side);
    // One row's sum takes a strip at once, that of two rows a part of it: where
    // there are two sets, one of them.
    const int64_t strip_floats = tile_.strip_rows * tile_.row_floats;
    const bool whole = plan().side == 1;
    part_floats_ = whole ? strip_floats : kPartVectors * LaneCount();
    parts_ = whole ? tile_.strips
                   : sets * tile_.strips * strip_floats / part_floats_;
    part_tile_floats_ =
        !whole && tile_.sets == 2 ? tile_.set_floats() : part_floats_;
  }

  void SumRow(const Unpacker& unpacker, const sparse::RowSpan& span,
              int64_t chunk, int64_t row) {
    const bool last = chunk + 1 == plan().chunks();
    float* const sums =
        plan().chunks() > 1 ? sums_ + row * pass_.row_sums() : nullptr;
    const int64_t output = span.first + row;
    float* const there = last ? ResultOf(output) : nullptr;
    float* const out = !last ? sums : there != nullptr ? there : out_;
    StripSum sum;
    sum.entries = entries_.entries;
    sum.quads = entries_.quads;
    sum.channel_floats = plan().channel_floats;
    sum.before_floats = pass_.row_sums();
    sum.out_floats = there != nullptr ? plane() : pass_.row_sums();
    sum.pair_floats = !last || tile_.pair == 1 ? 0
                      : there != nullptr       ? plan().sides.rows * plane()
                                               : tile_.positions() / tile_.pair;
    // In results, the images of a pair lie apart.
    const int64_t out_floats =
        sum.pair_floats == 0 ? part_floats_ : part_floats_ / tile_.pair;
    for (int64_t p = 0; p < tile_.phases(); ++p) {
      sum.phase = &phases_[p];
      sum.starts = unpacker.StartsOf(span, chunk, row) + phases_[p].first;
      for (int64_t i = 0; i < parts_; ++i) {
        sum.tile = values_ + i * part_tile_floats_;
        sum.before = chunk == 0
                         ? nullptr
                         : sums + p * tile_.positions() + i * part_floats_;
        sum.out = out + p * tile_.positions() + i * out_floats;
        sum_strip_(sum, mover_);
      }
    }
    if (!last || there != nullptr) return;
    for (int64_t o = 0; o < plan().side; ++o) {
      Write(output + o, out_ + o * pass_.row_sums(), partials_ + row + o);
    }
  }

 private:
  int64_t plane() const { return call_.pixels; }

  // Where results of the tile's rows begin.
  int64_t OffsetOf(int64_t image, int64_t output) const {
    return (image * plan().sides.rows + output) * plane() +
           tile_.phases() * place_.first_row * tile_.grouped.width;
  }

  // Where sums may be stored as they are, else null.
  float* ResultOf(int64_t output) const {
    const bool whole = place_.rows == tile_.rows() &&
                       place_.images == tile_.pair && tile_.sets == 1;
    if (!call_.sink.plain() || !whole || tile_.phases() > 1) return nullptr;
    return call_.sink.to.f32() + OffsetOf(place_.image, output);
  }

  void Write(int64_t output, float* sums, conv::Partial* partial) {
    // Of each set the first images, then the second ones.
    const int64_t image_floats = tile_.positions() / tile_.images();
    const int64_t n = tile_.phases() * place_.rows * tile_.grouped.width;
    for (int64_t p = 0; p < place_.images; ++p) {
      const int64_t offset = OffsetOf(place_.image + p, output);
      float* from =
          sums + (p % tile_.pair * tile_.sets + p / tile_.pair) * image_floats;
      if (tile_.phases() > 1) {
        const bool plain = call_.sink.plain();
        float* const to = plain ? call_.sink.to.f32() + offset : line_;
        Join(from, to);
        if (plain) continue;
        from = to;
      }
      WriteRow(call_.sink, output, offset, n, from, partial);
    }
  }

  // Rows 2u and 2u + 1 from the sums of their phases.
  void Join(const float* sums, float* to) const {
    const Eight d;
    const int64_t width = tile_.grouped.width;
    for (int64_t r = 0; r < place_.rows; ++r) {
      for (int64_t a = 0; a < 2; ++a, to += 2 * width) {
        const float* even = sums + 2 * a * tile_.positions() + r * width;
        const float* odd = even + tile_.positions();
        for (int64_t i = 0; i < width; i += 8) {
          hn::StoreInterleaved2(hn::LoadU(d, even + i), hn::LoadU(d, odd + i),
                                d, to + 2 * i);
        }
      }
    }
  }

  const sparse::StripPass& pass_;
  const sparse::StripTile& tile_;
  const sparse::SumCall& call_;
  const Mover mover_;
  StripFunction sum_strip_ = nullptr;
  // In positions, and in the tile, what it takes at a time.
  int64_t parts_ = 0;
  int64_t part_floats_ = 0;
  int64_t part_tile_floats_ = 0;
  sparse::StripPhase phases_[sparse::kMostPhases];
  float* values_;  // of the tile
  float* sums_;    // [row][phase][position], of all but the last chunk
  float* out_;     // [row of a pair][phase][image][position]
  float* line_;
  conv::Partial* partials_;  // of the span's rows
  sparse::EntryWork entries_;
  StripPlace place_;
};

#endif  // 8 lanes

}  // namespace

// False where this target, or the shape, has no such way.
bool RunStrips(const Conv2dShape& shape, bool forward,
               const sparse::SumCall& call, const KernelContext& context) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  sparse::StripPass pass;
  if (!sparse::MakeStripPass(shape, forward, LaneCount(), pass)) return false;
  SumRows<StripWay>(pass, call, context);
  return true;
#else
  (void)shape, (void)forward, (void)call, (void)context;
  return false;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
