// SPDX-License-Identifier: Apache-2.0
//
// The parts of batch normalisation that stay when the rest is fused into
// convolutions. Tensors that may all be stored differently go through f32
// pieces on the stack, so that loops do not multiply by the storage types of
// several operands.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm/parts.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cstdint>

#include "kernels/elements-inl.h"
#include "kernels/norm/coefficients.h"
#include "kernels/norm/moments-inl.h"
#include "kernels/norm/norm.h"
#include "kernels/norm/rest-inl.h"
#include "kernels/stage-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kStaged = 256;

// n elements that are all stored as T, in one pass. `residual` may be null;
// grad_x may be any of the others. The last elements are those of a whole
// vector, which is read before anything is written: masked stores are slow.
template <typename T>
HWY_INLINE void GradRestOf(int64_t n, const NormGradRest& rest, const T* d,
                           const T* x, const T* residual, T* grad_x) {
  const D df;
  const int64_t lanes = LaneCount();
  const auto at = [&](int64_t i) HWY_ATTR {
    const V v = rest.At(LoadAs(df, d + i), LoadAs(df, x + i));
    return residual == nullptr ? v : hn::Add(v, LoadAs(df, residual + i));
  };
  if (n < lanes) {
    const auto few = static_cast<size_t>(n);
    V v = rest.At(LoadFirstAs(df, d, few), LoadFirstAs(df, x, few));
    if (residual != nullptr) v = hn::Add(v, LoadFirstAs(df, residual, few));
    StoreFirstAs(v, df, grad_x, few);
    return;
  }
  const V at_last = at(n - lanes);
  for (int64_t i = 0; i < n - lanes; i += lanes) {
    StoreAs(at(i), df, grad_x + i);
  }
  StoreAs(at_last, df, grad_x + n - lanes);
}

// One plane of channel c, at element `at`.
void GradRestPlane(const BatchNormShape& shape, double count,
                   const ConstTensor& d, const ConstTensor& x,
                   const BatchNormGradSums& sums, const ConstTensor& residual,
                   const Tensor& grad_x, int64_t c, int64_t at) {
  const NormGradRest rest(sums, c, count);
  const DType dtype = grad_x.dtype();
  if (d.dtype() == dtype && x.dtype() == dtype &&
      (!residual.is_there() || residual.dtype() == dtype)) {
    WithFloatType(dtype, [&](auto type) HWY_ATTR {
      using T = decltype(type);
      GradRestOf(shape.pixels, rest, d.As<T>() + at, x.As<T>() + at,
                 residual.is_there() ? residual.As<T>() + at : nullptr,
                 grad_x.As<T>() + at);
    });
    return;
  }
  HWY_ALIGN float lines[3][kStaged];
  for (int64_t p = 0; p < shape.pixels; p += kStaged) {
    const int64_t n = HWY_MIN(kStaged, shape.pixels - p);
    // The sum is built up in lines[0].
    float* sum = lines[0];
    CopyRowAs(n, ReadPiece(d, at + p, n, lines[1]), sum,
              [](V v) HWY_ATTR { return v; });
    MapRow(n, ReadPiece(x, at + p, n, lines[1]), sum,
           [&](V v, V at_x) HWY_ATTR { return rest.At(v, at_x); });
    if (residual.is_there()) {
      MapRow(n, ReadPiece(residual, at + p, n, lines[1]), sum,
             [](V v, V r) HWY_ATTR { return hn::Add(v, r); });
    }
    WritePiece(n, sum, grad_x, at + p);
  }
}

void GradRestPlanes(const BatchNormShape& shape, int64_t images,
                    const ConstTensor& d, const ConstTensor& x,
                    const BatchNormGradSums& sums, const ConstTensor& residual,
                    const Tensor& grad_x, int64_t begin, int64_t end) {
  const auto count = static_cast<double>(images * shape.pixels);
  for (int64_t plane = begin; plane < end; ++plane) {
    GradRestPlane(shape, count, d, x, sums, residual, grad_x,
                  plane % shape.channels, plane * shape.pixels);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {

void BatchNormCoefficients(int64_t channels, float epsilon, const float* mean,
                           const float* variance, const float* gamma,
                           const float* beta, float* scale, float* shift,
                           float* inv_std) {
  for (int64_t c = 0; c < channels; ++c) {
    const norm::Coefficients k =
        norm::CoefficientsOf(epsilon, mean[c], variance[c], gamma[c], beta[c]);
    scale[c] = k.scale;
    shift[c] = k.shift;
    if (inv_std != nullptr) inv_std[c] = k.inv_std;
  }
}

void BatchNormGradRest(const BatchNormShape& shape, int64_t images,
                       const ConstTensor& d, const ConstTensor& x,
                       const BatchNormGradSums& sums,
                       const ConstTensor& residual, const Tensor& grad_x,
                       const KernelContext& context) {
  const auto run = THIMBLE_DISPATCH(GradRestPlanes).Get();
  context.pool->ParallelFor(
      images * shape.channels, [&](int64_t begin, int64_t end, int) {
        run(shape, images, d, x, sums, residual, grad_x, begin, end);
      });
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
