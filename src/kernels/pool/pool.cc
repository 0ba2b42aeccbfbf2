// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pool/pool.cc"
#include "kernels/pool/pool.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cstring>

#include "base/check.h"
#include "kernels/pool/average-inl.h"
#include "kernels/pool/grad-inl.h"
#include "kernels/pool/plane.h"
#include "kernels/pool/pool-inl.h"
#include "kernels/stage-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using pool::kStripSize;
using pool::Strip;

// ---- Planes that are not f32 go through strips that are.

// Calls copy(at, n, place): n elements that lie together, at `at` in a plane
// with rows of `width` and at `place` in the strip.
template <typename F>
HWY_INLINE void ForRows(Range rows, Range columns, int64_t width,
                        const F& copy) {
  if (columns.size() == width) {
    copy(rows.begin * width, rows.size() * width, int64_t{0});
    return;
  }
  for (int64_t r = 0; r < rows.size(); ++r) {
    copy((rows.begin + r) * width + columns.begin, columns.size(),
         r * columns.size());
  }
}

HWY_INLINE void ReadStrip(Range rows, Range columns, int64_t width,
                          const ConstTensor& from, float* strip) {
  ForRows(rows, columns, width,
          [&](int64_t at, int64_t n, int64_t place)
              HWY_ATTR { Widen(from, at, n, strip + place); });
}

HWY_INLINE void WriteStrip(Range rows, Range columns, int64_t width,
                           const float* strip, const Tensor& to) {
  ForRows(rows, columns, width,
          [&](int64_t at, int64_t n, int64_t place)
              HWY_ATTR { WritePiece(n, strip + place, to, at); });
}

// Forward, with body(plane, x, y, strip).
template <typename F>
HWY_INLINE void PoolStrips(const PoolPlane& whole, const ConstTensor& x,
                           const Tensor& y, const F& body) {
  HWY_ALIGN float in[kStripSize];
  HWY_ALIGN float out[kStripSize];
  ForStripsOfWindows(whole, [&](const Strip& strip) HWY_ATTR {
    ReadStrip(strip.rows, strip.columns, whole.width, x, in);
    body(strip.Plane(whole), in, out, strip);
    WriteStrip(strip.out_rows, strip.out_columns, whole.out_width, out, y);
  });
}

// Backward, with body(plane, grad_y, grad_x, strip).
template <typename F>
HWY_INLINE void PoolGradStrips(const PoolPlane& whole,
                               const ConstTensor& grad_y, const Tensor& grad_x,
                               const F& body) {
  HWY_ALIGN float in[kStripSize];
  HWY_ALIGN float out[kStripSize];
  ForStripsOfInputs(whole, [&](const Strip& strip) HWY_ATTR {
    ReadStrip(strip.out_rows, strip.out_columns, whole.out_width, grad_y, out);
    body(strip.Plane(whole), out, in, strip);
    WriteStrip(strip.rows, strip.columns, whole.width, in, grad_x);
  });
}

// ---- Planes of any float type

void MaxPoolAny(const PoolPlane& whole, const ConstTensor& x, const Tensor& y,
                uint8_t* winner) {
  if (y.dtype() == DType::kF32) {
    MaxPoolPlane(whole, x.f32(), y.f32(), winner);
    return;
  }
  uint8_t winners[kStripSize];
  PoolStrips(whole, x, y,
             [&](const PoolPlane& plane, const float* from, float* to,
                 const Strip& strip) HWY_ATTR {
               MaxPoolPlane(plane, from, to,
                            winner == nullptr ? nullptr : winners);
               if (winner == nullptr) return;
               ForRows(strip.out_rows, strip.out_columns, whole.out_width,
                       [&](int64_t at, int64_t n, int64_t place) HWY_ATTR {
                         std::memcpy(winner + at, winners + place,
                                     static_cast<size_t>(n));
                       });
             });
}

void MaxPoolGradAny(const PoolPlane& whole, const uint8_t* winner,
                    const ConstTensor& grad_y, const Tensor& grad_x) {
  if (grad_x.dtype() == DType::kF32) {
    MaxPoolGradPlane(whole, winner, grad_y.f32(), grad_x.f32());
    return;
  }
  uint8_t winners[kStripSize];
  PoolGradStrips(whole, grad_y, grad_x,
                 [&](const PoolPlane& plane, const float* from, float* to,
                     const Strip& strip) HWY_ATTR {
                   ForRows(strip.out_rows, strip.out_columns, whole.out_width,
                           [&](int64_t at, int64_t n, int64_t place) HWY_ATTR {
                             std::memcpy(winners + place, winner + at,
                                         static_cast<size_t>(n));
                           });
                   MaxPoolGradPlane(plane, winners, from, to);
                 });
}

void AveragePoolAny(const PoolPlane& whole, const ConstTensor& x,
                    const Tensor& y) {
  if (y.dtype() == DType::kF32) {
    AveragePoolPlane(whole, x.f32(), y.f32());
    return;
  }
  PoolStrips(whole, x, y,
             [&](const PoolPlane& plane, const float* from, float* to,
                 const Strip&) HWY_ATTR { AveragePoolPlane(plane, from, to); });
}

void AveragePoolGradAny(const PoolPlane& whole, const ConstTensor& grad_y,
                        const Tensor& grad_x) {
  if (grad_x.dtype() == DType::kF32) {
    AveragePoolGradPlane(whole, grad_y.f32(), grad_x.f32());
    return;
  }
  PoolGradStrips(
      whole, grad_y, grad_x,
      [&](const PoolPlane& plane, const float* from, float* to, const Strip&)
          HWY_ATTR { AveragePoolGradPlane(plane, from, to); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {
namespace {

// Calls run(input offset, output offset) for each plane, over the threads.
template <typename F>
void ForPlanes(const PoolShape& shape, int64_t images,
               const KernelContext& context, const F& run) {
  const int64_t in = shape.height * shape.width;
  const int64_t out = shape.out_height() * shape.out_width();
  context.pool->ParallelFor(images * shape.channels,
                            [&](int64_t begin, int64_t end, int) {
                              for (int64_t p = begin; p < end; ++p) {
                                run(p * in, p * out);
                              }
                            });
}

}  // namespace

void MaxPool(const PoolShape& shape, int64_t images, ConstTensor x, Tensor y,
             uint8_t* winner, const KernelContext& context) {
  TH_CHECK(x.dtype() == y.dtype());
  const pool::PoolPlane plane = pool::WholePlane(shape);
  const auto run = THIMBLE_DISPATCH(MaxPoolAny).Get();
  ForPlanes(shape, images, context, [&](int64_t in, int64_t out) {
    run(plane, x.From(in), y.From(out),
        winner == nullptr ? nullptr : winner + out);
  });
}

void MaxPoolGrad(const PoolShape& shape, int64_t images, const uint8_t* winner,
                 ConstTensor grad_y, Tensor grad_x,
                 const KernelContext& context) {
  TH_CHECK(grad_y.dtype() == grad_x.dtype());
  const pool::PoolPlane plane = pool::WholePlane(shape);
  const auto run = THIMBLE_DISPATCH(MaxPoolGradAny).Get();
  ForPlanes(shape, images, context, [&](int64_t in, int64_t out) {
    run(plane, winner + out, grad_y.From(out), grad_x.From(in));
  });
}

void AveragePool(const PoolShape& shape, int64_t images, ConstTensor x,
                 Tensor y, const KernelContext& context) {
  TH_CHECK(x.dtype() == y.dtype());
  const pool::PoolPlane plane = pool::WholePlane(shape);
  const auto run = THIMBLE_DISPATCH(AveragePoolAny).Get();
  ForPlanes(shape, images, context, [&](int64_t in, int64_t out) {
    run(plane, x.From(in), y.From(out));
  });
}

void AveragePoolGrad(const PoolShape& shape, int64_t images, ConstTensor grad_y,
                     Tensor grad_x, const KernelContext& context) {
  TH_CHECK(grad_y.dtype() == grad_x.dtype());
  const pool::PoolPlane plane = pool::WholePlane(shape);
  const auto run = THIMBLE_DISPATCH(AveragePoolGradAny).Get();
  ForPlanes(shape, images, context, [&](int64_t in, int64_t out) {
    run(plane, grad_y.From(out), grad_x.From(in));
  });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
