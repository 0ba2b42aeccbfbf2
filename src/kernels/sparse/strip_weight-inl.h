// SPDX-License-Identifier: Apache-2.0
//
// The gradient of sparse weights in strips (strip_pass.h). Included once per
// SIMD target, after <hwy/highway.h>; hence no `#pragma once`.
#if defined(THIMBLE_KERNELS_SPARSE_STRIP_WEIGHT_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef THIMBLE_KERNELS_SPARSE_STRIP_WEIGHT_INL_H_
#undef THIMBLE_KERNELS_SPARSE_STRIP_WEIGHT_INL_H_
#else
#define THIMBLE_KERNELS_SPARSE_STRIP_WEIGHT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "kernels/sparse/strip_tile-inl.h"
#include "kernels/sparse/strips-inl.h"
#include "kernels/sparse/weight_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

// Entries at a time: sums that do not wait for each other, beside grad in
// registers.
#if HWY_TARGET == HWY_AVX3
constexpr int64_t kManyProducts = 8;
#else
constexpr int64_t kManyProducts = 4;
#endif

// kN entries' products with grad, summed up. An entry's sum does not depend on
// those beside it.
template <int64_t kN, int64_t kV, int64_t kSets>
HWY_INLINE void AddFew(const V (&grad)[kV], const float* HWY_RESTRICT tile,
                       const int32_t* offsets, float* sums) {
  const D d;
  const int64_t lanes = LaneCount();
  const float* x[kN];
  V acc[kN];
  THIMBLE_UNROLL
  for (int64_t k = 0; k < kN; ++k) {
    x[k] = tile + offsets[k];
    acc[k] = hn::Mul(grad[0], hn::LoadU(d, x[k]));
  }
  THIMBLE_UNROLL
  for (int64_t v = 1; v < kV; ++v) {
    const int64_t at = StripVector<kV, kSets>(v) * lanes;
    THIMBLE_UNROLL
    for (int64_t k = 0; k < kN; ++k) {
      acc[k] = hn::MulAdd(grad[v], hn::LoadU(d, x[k] + at), acc[k]);
    }
  }
  const hn::CappedTag<float, static_cast<size_t>(kN)> few;
  hn::StoreU(hn::Add(hn::LoadU(few, sums), SumsOfLanes(acc)), few, sums);
}

// Entries of one slot, with grad_y moved against it.
struct StripProduct {
  const float* tile;       // the strip's first row
  int64_t channel_floats;  // of the tile
  const float* grad;
  int64_t grad_floats;  // of a row, for quads
  int64_t move;
  const int32_t* offsets;
  float* sums;
  int64_t count;
};

template <int64_t kV, int64_t kRow, int64_t kSets = 1>
void AddStripProducts(const StripProduct& product, const Mover& mover) {
  constexpr auto kFew = static_cast<int64_t>(kTogether);
  const D d;
  const int64_t lanes = LaneCount();
  V grad[kV];
  THIMBLE_UNROLL
  for (int64_t v = 0; v < kV; ++v) {
    grad[v] = hn::LoadU(d, product.grad + v * lanes);
  }
  if (product.move > 0) {
    MoveSums<-1, kV, kRow>(mover, grad);
  } else if (product.move < 0) {
    MoveSums<1, kV, kRow>(mover, grad);
  }
  int64_t i = 0;
  for (; i + kManyProducts <= product.count; i += kManyProducts) {
    AddFew<kManyProducts, kV, kSets>(grad, product.tile, product.offsets + i,
                                     product.sums + i);
  }
  for (; i + kFew <= product.count; i += kFew) {
    AddFew<kFew, kV, kSets>(grad, product.tile, product.offsets + i,
                            product.sums + i);
  }
  if (i == product.count) return;
  int32_t offsets[kTogether];
  float sums[kTogether];
  for (int64_t k = 0; k < kFew; ++k) {
    const int64_t at = HWY_MIN(i + k, product.count - 1);
    offsets[k] = product.offsets[at];
    sums[k] = product.sums[at];
  }
  AddFew<kFew, kV, kSets>(grad, product.tile, offsets, sums);
  for (int64_t k = 0; i + k < product.count; ++k) product.sums[i + k] = sums[k];
}

// Of kN quads: two outputs' rows of grad, kV vectors each, with x of two
// channels. kN quads' sums fill the registers; each is made as an entry's is.
template <int64_t kN, int64_t kV, int64_t kSets>
HWY_INLINE void AddFewQuads(const float* HWY_RESTRICT grad,
                            const float* HWY_RESTRICT tile,
                            int64_t channel_floats, const int32_t* offsets,
                            float* sums) {
  const D d;
  const int64_t lanes = LaneCount();
  const float* x[kN];
  V acc[kN][kTogether];
  const auto add = [&](int64_t v, auto first) HWY_ATTR {
    const int64_t at = StripVector<kV, kSets>(v) * lanes;
    const V grad0 = hn::Load(d, grad + v * lanes);
    const V grad1 = hn::Load(d, grad + (kV + v) * lanes);
    THIMBLE_UNROLL
    for (int64_t k = 0; k < kN; ++k) {
      const V x0 = LoadShared(x[k] + at);
      const V x1 = LoadShared(x[k] + channel_floats + at);
      if constexpr (decltype(first)::value) {
        acc[k][0] = hn::Mul(grad0, x0);
        acc[k][1] = hn::Mul(grad0, x1);
        acc[k][2] = hn::Mul(grad1, x0);
        acc[k][3] = hn::Mul(grad1, x1);
      } else {
        acc[k][0] = hn::MulAdd(grad0, x0, acc[k][0]);
        acc[k][1] = hn::MulAdd(grad0, x1, acc[k][1]);
        acc[k][2] = hn::MulAdd(grad1, x0, acc[k][2]);
        acc[k][3] = hn::MulAdd(grad1, x1, acc[k][3]);
      }
    }
  };
  THIMBLE_UNROLL
  for (int64_t k = 0; k < kN; ++k) x[k] = tile + offsets[k];
  add(0, std::true_type());
  for (int64_t v = 1; v < kV; ++v) add(v, std::false_type());
  const Few few;
  THIMBLE_UNROLL
  for (int64_t k = 0; k < kN; ++k, sums += kTogether) {
    hn::StoreU(hn::Add(hn::LoadU(few, sums), SumsOfLanes(acc[k])), few, sums);
  }
}

template <int64_t kV, int64_t kRow, int64_t kSets = 1>
void AddStripQuads(const StripProduct& product, const Mover& mover) {
  const D d;
  const int64_t lanes = LaneCount();
  HWY_ALIGN float moved[2 * kV * hn::MaxLanes(d)];
  for (int64_t o = 0; o < 2; ++o) {
    V grad[kV];
    THIMBLE_UNROLL
    for (int64_t v = 0; v < kV; ++v) {
      grad[v] =
          hn::LoadU(d, product.grad + o * product.grad_floats + v * lanes);
    }
    if (product.move > 0) {
      MoveSums<-1, kV, kRow>(mover, grad);
    } else if (product.move < 0) {
      MoveSums<1, kV, kRow>(mover, grad);
    }
    THIMBLE_UNROLL
    for (int64_t v = 0; v < kV; ++v) {
      hn::Store(grad[v], d, moved + (o * kV + v) * lanes);
    }
  }
  constexpr int64_t kMost = kManyProducts / 2;
  const int64_t step = product.channel_floats;
  int64_t i = 0;
  for (; i + kMost <= product.count; i += kMost) {
    AddFewQuads<kMost, kV, kSets>(moved, product.tile, step,
                                  product.offsets + i, product.sums + 4 * i);
  }
  for (; i + 2 <= product.count; i += 2) {
    AddFewQuads<2, kV, kSets>(moved, product.tile, step, product.offsets + i,
                              product.sums + 4 * i);
  }
  if (i == product.count) return;
  AddFewQuads<1, kV, kSets>(moved, product.tile, step, product.offsets + i,
                            product.sums + 4 * i);
}

using StripProductFunction = void (*)(const StripProduct&, const Mover&);

// For tiles that hold `sets` sets.
template <int64_t kV, int64_t kRow, int64_t kSets = 1>
StripProductFunction ChooseSide(int64_t side) {
  return side == 2 ? &AddStripQuads<kV, kRow, kSets>
                   : &AddStripProducts<kV, kRow, kSets>;
}
StripProductFunction ChooseStripProduct(const sparse::StripTile& tile,
                                        int64_t sets, int64_t side) {
  const int64_t row = tile.row_floats / LaneCount();
#if HWY_TARGET == HWY_AVX3
  if (tile.sets == 2) {
    return sets == 2 ? ChooseSide<16, 1, 2>(side) : ChooseSide<8, 1>(side);
  }
  if (tile.vectors == 16) {
    return row == 2 ? ChooseSide<16, 2>(side) : ChooseSide<16, 1>(side);
  }
  return row == 2 ? ChooseSide<8, 2>(side) : ChooseSide<8, 1>(side);
#else
  (void)sets;
  return row == 4   ? ChooseSide<8, 4>(side)
         : row == 2 ? ChooseSide<8, 2>(side)
                    : ChooseSide<8, 1>(side);
#endif
}

// The fast way (SumWeights).
class StripWeightWay {
 public:
  StripWeightWay(const sparse::StripWeightPass& pass,
                 const sparse::WeightCall& call, float* scratch)
      : pass_(pass),
        tile_(pass.tile),
        call_(call),
        mover_(pass.tile.grouped.width) {
    values_ = scratch + pass.plan.Floats();
    grad_ = values_ + pass.tile_floats();
    work_ = sparse::WeightWork(pass.plan, scratch, values_);
    sparse::ListStripSlots(tile_, &phase_, work_.places);
  }

  int64_t step() const { return tile_.images(); }
  int64_t tiles() const { return tile_.tiles(); }
  const sparse::WeightPlan& plan() const { return pass_.plan; }
  const sparse::WeightWork& work() const { return work_; }

  void Load(int64_t image, int64_t images, int64_t tile, int64_t chunk) {
    place_.image = image;
    place_.images = images;
    place_.first_row = tile * tile_.rows();
    place_.rows =
        HWY_MIN(tile_.rows(), tile_.grouped.height - place_.first_row);
    place_.channel = chunk * plan().chunk;
    place_.channels =
        HWY_MIN(plan().chunk, plan().sides.channels - place_.channel);
    LoadStrips(tile_, call_.x, place_, values_);
    add_ = ChooseStripProduct(tile_, conv::CeilDiv(images, tile_.pair),
                              plan().side);
  }

  void SumRow(const WeightEntries& entries, int64_t chunk, int64_t row) {
    const WeightEntries::Run first = entries.RunOf(chunk, row, 0);
    const WeightEntries::Run last = entries.RunOf(chunk, row, plan().slots - 1);
    if (first.first == last.last) return;
    const int64_t side = plan().side, grad_floats = tile_.positions();
    for (int64_t o = 0; o < side; ++o) {
      LoadGrad(entries.OutputOf(row) + o, grad_ + o * grad_floats);
    }
    const int64_t strip_floats = tile_.strip_rows * tile_.row_floats;
    for (int64_t slot = 0; slot < plan().slots; ++slot) {
      const WeightEntries::Run run = entries.RunOf(chunk, row, slot);
      if (run.first == run.last) continue;
      for (int64_t s = 0; s < tile_.strips; ++s) {
        add_({values_ + s * strip_floats, plan().channel_floats,
              grad_ + s * strip_floats, grad_floats, phase_.moves[slot],
              entries.offsets() + run.first,
              entries.sums() + side * side * run.first, run.last - run.first},
             mover_);
      }
    }
  }

 private:
  // The tile's rows of one output; zeros where there is no row, or no image.
  void LoadGrad(int64_t output, float* to) const {
    const int64_t pitch = tile_.row_floats;
    const int64_t width = tile_.grouped.width;
    const int64_t height = tile_.grouped.height;
#if HWY_TARGET == HWY_AVX3
    if (tile_.pair == 2) {
      LoadPairedGrad(output, to);
      return;
    }
#endif
    if (place_.images % tile_.pair != 0) {
      ZeroRows(tile_.sets * tile_.rows(), pitch, pitch, to);
    }
    const Conv2dInput input{.x = call_.grad_y};
    WithFloatType(call_.grad_y.dtype(), [&](auto type) HWY_ATTR {
      using T = decltype(type);
      for (int64_t p = 0; p < place_.images; ++p) {
        const int64_t plane = (place_.image + p) * plan().sides.rows + output;
        LoadWhole<Prologue::kNone>(
            input, 0, call_.grad_y.As<T>() + plane * height * width, height,
            width, place_.first_row, tile_.rows(), pitch,
            to + p / tile_.pair * tile_.rows() * pitch +
                p % tile_.pair * width);
      }
    });
  }

#if HWY_TARGET == HWY_AVX3
  // The same of images side by side.
  void LoadPairedGrad(int64_t output, float* to) const {
    const int64_t plane = tile_.grouped.height * tile_.grouped.width;
    const int64_t image = plan().sides.rows * plane;
    const int64_t rows = tile_.rows();
    const RowRange there = {0, place_.rows};
    const V none = hn::Zero(D());
    WithFloatType(call_.grad_y.dtype(), [&](auto type) HWY_ATTR {
      using T = decltype(type);
      const T* from = call_.grad_y.As<T>() + place_.image * image +
                      output * plane + place_.first_row * tile_.grouped.width;
      for (int64_t p = 0; p < place_.images; p += 2, from += 2 * image) {
        LoadPairs<Prologue::kNone>(
            none, none, from, p + 1 < place_.images ? from + image : nullptr,
            there, rows, to + p / 2 * rows * tile_.row_floats);
      }
    });
  }
#endif

  const sparse::StripWeightPass& pass_;
  const sparse::StripTile& tile_;
  const sparse::WeightCall& call_;
  const Mover mover_;
  StripProductFunction add_ = nullptr;
  sparse::StripPhase phase_;
  float* values_;  // of the tile
  float* grad_;
  sparse::WeightWork work_;
  StripPlace place_;
};

#endif  // 8 lanes

}  // namespace

// False where this target, or the shape, has no such way.
bool RunStripWeights(const Conv2dShape& shape, const sparse::WeightCall& call,
                     const KernelContext& context) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  sparse::StripWeightPass pass;
  if (!sparse::MakeStripWeightPass(shape, LaneCount(), pass)) return false;
  SumWeights<StripWeightWay>(pass, call, context);
  return true;
#else
  (void)shape, (void)call, (void)context;
  return false;
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
