// SPDX-License-Identifier: Apache-2.0
#include "kernels/dot/direct_weight.h"

#include <algorithm>
#include <cstring>

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
  const Conv2dGradWeightTarget& grad_w;
};

// A thread's scratch, and its unit of work.
struct WeightWork {
  WeightWork(const DirectWeightPass& pass, uint32_t* scratch)
      : offsets(reinterpret_cast<int32_t*>(scratch)),
        line(reinterpret_cast<uint16_t*>(scratch + pass.tap_words())),
        x(line + 2 * pass.line_words()),
        grad(scratch + pass.tap_words() + pass.line_words() + pass.x_words()),
        sums(reinterpret_cast<float*>(grad + pass.grad_words())) {}

  int32_t* offsets;  // of [channel][tap] in x
  uint16_t* line;
  uint16_t* x;     // [image][channel][plane]
  uint32_t* grad;  // [image][pair of positions][output]
  float* sums;     // [channel][tap][output]
  int64_t output = 0;
  int64_t outputs = 0;
  int64_t channel = 0;
  int64_t channels = 0;
};

// The last group of taps is filled up with its last tap.
void ListOffsets(const DirectWeightPass& pass, const WeightWork& work) {
  const Conv2dShape& s = pass.shape;
  const int64_t count = work.channels * pass.taps();
  for (int64_t i = 0; i < conv::RoundUp(count, kSumTaps); ++i) {
    const int64_t index = std::min(i, count - 1);
    const int64_t tap = index % pass.taps();
    const int64_t kh = tap / s.kernel_w;
    const int64_t plane = index / pass.taps() * pass.planes.count() +
                          kh % s.stride * s.kernel_w + tap % s.kernel_w;
    work.offsets[i] = static_cast<int32_t>(plane * pass.plane() +
                                           kh / s.stride * pass.planes.cols);
  }
}

// Sums over all images, then writes the unit's part of grad_w.
void SumUnit(const WeightCall& call, const WeightWork& work) {
  const DirectWeightPass& pass = call.pass;
  const Planes& planes = pass.planes;
  const int64_t count = work.channels * pass.taps();
  const FlushDenormals flush;
  ListOffsets(pass, work);
  std::fill_n(work.sums, pass.sum_words(), 0.0f);
  for (int64_t image = 0; image < call.images; image += pass.images) {
    const int64_t images = std::min(pass.images, call.images - image);
    for (int64_t row = 0; row < planes.rows; row += planes.block_rows) {
      const int64_t rows = std::min(planes.block_rows, planes.rows - row);
      for (int64_t i = 0; i < images; ++i) {
        call.build.load_x(pass, call.x, image + i, work.channel, work.channels,
                          row, rows, work.line,
                          work.x + i * pass.image_halves());
        call.build.load_grad(
            pass, call.grad_y, image + i, work.output, work.outputs, row, rows,
            work.grad + i * pass.position_pairs(rows) * pass.block);
      }
      call.build.add(pass, images, rows, count, work.offsets, work.x, work.grad,
                     work.sums);
    }
  }
  const int64_t all = pass.shape.in_channels * pass.taps();
  call.build.store(call.grad_w, work.sums, pass.block, work.outputs, count,
                   work.output * all + work.channel * pass.taps(), all);
}

WeightBuild ActiveWeightBuild() {
  return {THIMBLE_DOT_TABLE(LoadWeightTile).Get(),
          THIMBLE_DOT_TABLE(LoadWeightGrad).Get(),
          THIMBLE_DOT_TABLE(AddWeightTile).Get(),
          THIMBLE_DOT_TABLE(StoreWeightSums).Get()};
}

}  // namespace

// Threads share the pairs (block of outputs, chunk of channels).
bool RunDirectWeight(const Conv2dShape& shape, size_t bytes, int64_t images,
                     const Conv2dInput& x, const ConstTensor& grad_y,
                     const Conv2dGradWeightTarget& grad_w,
                     const KernelContext& context) {
  const DType to = grad_w.to.dtype();
  if (x.x.dtype() != DType::kBF16 || grad_y.dtype() != DType::kBF16 ||
      (to != DType::kBF16 && to != DType::kF32)) {
    return false;
  }
  DirectWeightPass pass;
  if (!MakeDirectWeightPass(shape, bytes, pass)) return false;
  const WeightCall call{pass,
                        ActiveWeightBuild(),
                        images,
                        x,
                        static_cast<const uint16_t*>(grad_y.data()),
                        grad_w};
  const int64_t chunks = pass.chunks();
  context.pool->ParallelFor(
      pass.blocks() * chunks, [&](int64_t begin, int64_t end, int thread) {
        WeightWork work(pass, context.PerThread<uint32_t>(thread));
        for (int64_t unit = begin; unit < end; ++unit) {
          work.output = unit / chunks * pass.block;
          work.outputs = std::min(pass.block, shape.out_channels - work.output);
          work.channel = unit % chunks * pass.chunk;
          work.channels =
              std::min(pass.chunk, shape.in_channels - work.channel);
          SumUnit(call, work);
        }
      });
  return true;
}

#else

bool RunDirectWeight(const Conv2dShape&, size_t, int64_t, const Conv2dInput&,
                     const ConstTensor&, const Conv2dGradWeightTarget&,
                     const KernelContext&) {
  return false;  // no other CPU has dot products
}

#endif

}  // namespace thimble::kernels::dot
