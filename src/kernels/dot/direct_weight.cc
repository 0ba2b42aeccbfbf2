// SPDX-License-Identifier: Apache-2.0
#include "kernels/dot/direct_weight.h"

#include <algorithm>
#include <cstring>

#include "kernels/conv/weight_units.h"
#include "kernels/dot/dot_form.h"
#include "kernels/dot/flush.h"

#if defined(__x86_64__)
#define THIMBLE_DOT_INCLUDE "kernels/dot/direct_weight-inl.h"
#include "kernels/dot/foreach_build.h"
#endif

namespace thimble::kernels::dot {

#if defined(__x86_64__)
namespace {

// One build of direct_weight-inl.h.
struct WeightBuild {
  decltype(&dot_native::LoadWeightTile) load_x;
  decltype(&dot_native::LoadWeightGrad) load_grad;
  decltype(&dot_native::AddWeightTile) add;
  decltype(&dot_native::StoreWeightSums) store;
};

struct WeightCall {
  const DirectWeightPass& pass;
  WeightBuild build;
  int64_t images;
  const Conv2dInput& x;
  const uint16_t* grad_y;
};

// A thread's scratch, and its unit of work.
struct WeightWork {
  WeightWork(const DirectWeightPass& pass, float* memory)
      : WeightWork(pass, reinterpret_cast<uint32_t*>(memory)) {}
  WeightWork(const DirectWeightPass& pass, uint32_t* scratch)
      : offsets(reinterpret_cast<int32_t*>(scratch)),
        x(reinterpret_cast<uint16_t*>(scratch + pass.tap_words())),
        grad(scratch + pass.tap_words() + pass.x_words()),
        sums(reinterpret_cast<float*>(grad + pass.grad_words())) {}

  int32_t* offsets;  // of [channel][tap] in x
  uint16_t* x;       // [image][channel][plane]
  uint32_t* grad;    // [image][pair of positions][output]
  float* sums;       // [channel][tap][output]
};

// The last group of taps is filled up with its last tap.
void ListOffsets(const DirectWeightPass& pass, int64_t channels,
                 const WeightWork& work) {
  const Conv2dShape& s = pass.shape;
  const int64_t count = channels * pass.taps();
  for (int64_t i = 0; i < conv::RoundUp(count, kSumTaps); ++i) {
    const int64_t index = std::min(i, count - 1);
    const int64_t tap = index % pass.taps();
    const int64_t kh = tap / s.kernel_w;
    work.offsets[i] =
        static_cast<int32_t>(index / pass.taps() * pass.channel_halves() +
                             pass.plane_at(kh % s.stride, tap % s.kernel_w) +
                             kh / s.stride * pass.planes.cols);
  }
}

// What the unit reads of images from `image` on, which are whole.
WeightAhead NextOf(const WeightCall& call, const conv::WeightUnit& unit,
                   int64_t image) {
  const DirectWeightPass& pass = call.pass;
  const Conv2dShape& s = pass.shape;
  WeightAhead ahead;
  // One at a time lies in one piece.
  if (image >= call.images || pass.planes.blocks() > 1) return ahead;
  // Sums of kernels of 1x1 are too short to wait for it.
  if (pass.taps() == 1) return ahead;
  const int64_t pixels = s.in_height * s.in_width;
  const int64_t positions = pass.planes.rows * pass.planes.cols;
  ahead.x = {call.x.x.halves(DType::kBF16) +
                 (image * s.in_channels + unit.first_channel) * pixels,
             unit.channels * pixels};
  ahead.grad_y = {
      call.grad_y + (image * s.out_channels + unit.first_output) * positions,
      unit.outputs * positions};
  ahead.lines = 4;
  return ahead;
}

// Sums over all images, then writes the unit's part of grad_w.
void SumUnit(const WeightCall& call, const conv::WeightUnit& unit,
             const WeightWork& work) {
  const DirectWeightPass& pass = call.pass;
  const Planes& planes = pass.planes;
  const int64_t count = unit.channels * pass.taps();
  const FlushDenormals flush;
  ListOffsets(pass, unit.channels, work);
  std::fill_n(work.sums, pass.sum_words(), 0.0f);
  for (int64_t image = 0; image < call.images; image += pass.images) {
    const int64_t images = std::min(pass.images, call.images - image);
    for (int64_t row = 0; row < planes.rows; row += planes.block_rows) {
      const int64_t rows = std::min(planes.block_rows, planes.rows - row);
      for (int64_t i = 0; i < images; ++i) {
        call.build.load_x(pass, call.x, image + i, unit.first_channel,
                          unit.channels, row, rows,
                          work.x + i * pass.image_halves());
        call.build.load_grad(
            pass, call.grad_y, image + i, unit.first_output, unit.outputs, row,
            rows, work.grad + i * pass.position_pairs(rows) * pass.block);
      }
      WeightAhead ahead = NextOf(call, unit, image + images);
      call.build.add(pass, images, rows, count, work.offsets, work.x, work.grad,
                     work.sums, ahead);
    }
  }
  call.build.store(unit.to, work.sums, pass.block, unit.outputs, count, unit.at,
                   unit.stride);
}

WeightBuild ActiveWeightBuild() {
  return {THIMBLE_DOT_TABLE(LoadWeightTile).Get(),
          THIMBLE_DOT_TABLE(LoadWeightGrad).Get(),
          THIMBLE_DOT_TABLE(AddWeightTile).Get(),
          THIMBLE_DOT_TABLE(StoreWeightSums).Get()};
}

}  // namespace

bool RunDirectWeight(const Conv2dShape& shape, int64_t images,
                     const Conv2dInput& x, const ConstTensor& grad_y,
                     const Conv2dGradWeightTarget& grad_w,
                     const KernelContext& context) {
  if (x.x.dtype() != DType::kBF16 || grad_y.dtype() != DType::kBF16) {
    return false;
  }
  DirectWeightPass pass;
  if (!MakeDirectWeightPass(shape, conv::WeightScratchOf(shape), pass)) {
    return false;
  }
  if (grad_w.pieces != nullptr) {
    pass = InPieces(pass);
  } else if (grad_w.to.dtype() != DType::kBF16 &&
             grad_w.to.dtype() != DType::kF32) {
    return false;
  }
  const WeightCall call{pass, ActiveWeightBuild(), images, x,
                        grad_y.halves(DType::kBF16)};
  conv::ForWeightUnits(
      shape, {pass.block, pass.chunk, static_cast<int64_t>(pass.Bytes() / 4)},
      grad_w, context, [&](const conv::WeightUnit& unit, float* scratch) {
        SumUnit(call, unit, WeightWork(pass, scratch));
      });
  return true;
}

#else

bool RunDirectWeight(const Conv2dShape&, int64_t, const Conv2dInput&,
                     const ConstTensor&, const Conv2dGradWeightTarget&,
                     const KernelContext&) {
  return false;  // no other CPU has dot products
}

#endif

}  // namespace thimble::kernels::dot
