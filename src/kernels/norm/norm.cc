// SPDX-License-Identifier: Apache-2.0
//
// Two ways through the data: planes (planes-inl.h) and rows of features
// (rows-inl.h). All tensors of a call are stored alike, and converted in
// registers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm/norm.cc"
#include "kernels/norm/norm.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "base/check.h"
#include "kernels/norm/planes-inl.h"
#include "kernels/norm/rows-inl.h"
#include "kernels/storage.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

void Train(const BatchNormShape& shape, int64_t images, float epsilon,
           const ConstTensor& x, const float* gamma, const float* beta,
           const Tensor& y, float* mean, float* variance, int64_t begin,
           int64_t end) {
  WithFloatType(x.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    const auto run = shape.pixels == 1 ? TrainRowsOf<T> : TrainPlanesOf<T>;
    run(shape, images, epsilon, x.As<T>(), gamma, beta, y.As<T>(), mean,
        variance, begin, end);
  });
}

template <typename T>
void MomentsPlanesOf(const BatchNormShape& shape, int64_t images, const T* x,
                     float* mean, float* variance, int64_t begin, int64_t end) {
  ForChannelsTogether(
      shape, begin, end, [&](int64_t first, int64_t last) HWY_ATTR {
        MomentsOfChannels(shape, images, x, mean, variance, first, last);
      });
}

void MomentsPlanes(const BatchNormShape& shape, int64_t images,
                   const ConstTensor& x, float* mean, float* variance,
                   int64_t begin, int64_t end) {
  WithFloatType(x.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    MomentsPlanesOf(shape, images, x.As<T>(), mean, variance, begin, end);
  });
}

void Apply(const BatchNormShape& shape, int64_t images, float epsilon,
           const ConstTensor& x, const float* gamma, const float* beta,
           const float* mean, const float* variance, const Tensor& y,
           int64_t begin, int64_t end) {
  WithFloatType(x.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    const auto run = shape.pixels == 1 ? ApplyRowsOf<T> : ApplyPlanesOf<T>;
    run(shape, images, epsilon, x.As<T>(), gamma, beta, mean, variance,
        y.As<T>(), begin, end);
  });
}

void Grad(const BatchNormShape& shape, int64_t images, float epsilon,
          const ConstTensor& x, const float* gamma, const float* mean,
          const float* variance, const ConstTensor& grad_y,
          const Tensor& grad_x, float* grad_gamma, float* grad_beta,
          bool accumulate, int64_t begin, int64_t end) {
  WithFloatType(x.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    const auto run = shape.pixels == 1 ? GradRowsOf<T> : GradPlanesOf<T>;
    run(shape, images, epsilon, x.As<T>(), gamma, mean, variance,
        grad_y.As<T>(), grad_x.As<T>(), grad_gamma, grad_beta, accumulate,
        begin, end);
  });
}

// next = (1 − momentum) running + momentum factor batch, in f64.
void BlendRunning(int64_t channels, float momentum, double factor,
                  const float* batch, const float* running, float* next) {
  const Wide d;
  const WideV keep = hn::Set(d, 1.0 - static_cast<double>(momentum));
  const WideV take = hn::Set(d, momentum * factor);
  ForChannelVectors(0, channels, [&](int64_t c, size_t n) HWY_ATTR {
    const WideV old = hn::Mul(keep, LoadWide(running + c, n));
    StoreNarrow(hn::MulAdd(take, LoadWide(batch + c, n), old), next + c, n);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {
namespace {

// Calls run(begin, end) for ranges of channels, spread over the threads. Rows
// of features go in blocks that are whole vectors of any target, so that a
// channel falls into the same lane for every thread count.
template <typename F>
void ForChannels(const BatchNormShape& shape, const KernelContext& context,
                 const F& run) {
  const int64_t block = shape.pixels == 1 ? 64 : 1;
  const int64_t channels = shape.channels;
  context.pool->ParallelFor(
      (channels + block - 1) / block, [&](int64_t begin, int64_t end, int) {
        run(begin * block, end * block < channels ? end * block : channels);
      });
}

}  // namespace

void BatchNormTrain(const BatchNormShape& shape, int64_t images, float epsilon,
                    const ConstTensor& x, const float* gamma, const float* beta,
                    const Tensor& y, float* mean, float* variance,
                    const KernelContext& context) {
  const auto run = THIMBLE_DISPATCH(Train).Get();
  TH_CHECK(x.dtype() == y.dtype());
  ForChannels(shape, context, [&](int64_t begin, int64_t end) {
    run(shape, images, epsilon, x, gamma, beta, y, mean, variance, begin, end);
  });
}

void BatchNormMoments(const BatchNormShape& shape, int64_t images,
                      const ConstTensor& x, float* mean, float* variance,
                      const KernelContext& context) {
  const auto run = THIMBLE_DISPATCH(MomentsPlanes).Get();
  context.pool->ParallelFor(shape.channels,
                            [&](int64_t begin, int64_t end, int) {
                              run(shape, images, x, mean, variance, begin, end);
                            });
}

void BatchNormApply(const BatchNormShape& shape, int64_t images, float epsilon,
                    const ConstTensor& x, const float* gamma, const float* beta,
                    const float* mean, const float* variance, const Tensor& y,
                    const KernelContext& context) {
  const auto run = THIMBLE_DISPATCH(Apply).Get();
  TH_CHECK(x.dtype() == y.dtype());
  ForChannels(shape, context, [&](int64_t begin, int64_t end) {
    run(shape, images, epsilon, x, gamma, beta, mean, variance, y, begin, end);
  });
}

void BatchNormGrad(const BatchNormShape& shape, int64_t images, float epsilon,
                   const ConstTensor& x, const float* gamma, const float* mean,
                   const float* variance, const ConstTensor& grad_y,
                   const Tensor& grad_x, float* grad_gamma, float* grad_beta,
                   const KernelContext& context, bool accumulate) {
  const auto run = THIMBLE_DISPATCH(Grad).Get();
  TH_CHECK(grad_y.dtype() == x.dtype());
  TH_CHECK(!grad_x.is_there() || grad_x.dtype() == x.dtype());
  ForChannels(shape, context, [&](int64_t begin, int64_t end) {
    run(shape, images, epsilon, x, gamma, mean, variance, grad_y, grad_x,
        grad_gamma, grad_beta, accumulate, begin, end);
  });
}

void BatchNormUpdateRunning(int64_t channels, int64_t count, float momentum,
                            const float* mean, const float* variance,
                            const float* running_mean,
                            const float* running_variance, float* next_mean,
                            float* next_variance, const KernelContext&) {
  // Channels are too few to be worth waking threads for.
  const auto blend = THIMBLE_DISPATCH(BlendRunning).Get();
  const double unbias =
      count > 1 ? static_cast<double>(count) / static_cast<double>(count - 1)
                : 1.0;
  blend(channels, momentum, 1.0, mean, running_mean, next_mean);
  blend(channels, momentum, unbias, variance, running_variance, next_variance);
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
