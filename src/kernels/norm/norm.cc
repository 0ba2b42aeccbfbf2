// SPDX-License-Identifier: Apache-2.0
//
// Two ways through the data. Planes: lanes run over the pixels of one channel.
// Rows of features (pixels = 1): lanes run over channels, in f64.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm/norm.cc"
#include "kernels/norm/norm.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cmath>

#include "kernels/norm/coefficients.h"
#include "kernels/norm/moments-inl.h"
#include "kernels/simd-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

using Wide = hn::ScalableTag<double>;
using WideV = hn::Vec<Wide>;
using Narrow = hn::Rebind<float, Wide>;

// ---- Planes

// out[i] = f(x[i], g[i]) over [0, n); out may be x or g. The last elements are
// those of a whole vector, which is read before anything is written: masked
// stores are slow.
template <typename F>
HWY_INLINE void MapPiece(size_t n, const float* x, const float* g, float* out,
                         const F& f) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  if (n < lanes) {
    const V v = LoadFirst(d, x, n);
    StoreFirst(f(v, LoadFirst(d, g, n)), d, out, n);
    return;
  }
  const size_t last = n - lanes;
  const V at_last = f(hn::LoadU(d, x + last), hn::LoadU(d, g + last));
  for (size_t i = 0; i < last; i += lanes) {
    hn::StoreU(f(hn::LoadU(d, x + i), hn::LoadU(d, g + i)), d, out + i);
  }
  hn::StoreU(at_last, d, out + last);
}

void ApplyPlanes(const BatchNormShape& shape, int64_t images, float epsilon,
                 const float* x, const float* gamma, const float* beta,
                 const float* mean, const float* variance, float* y,
                 int64_t begin, int64_t end) {
  const D d;
  ForChannelsTogether(
      shape, begin, end, [&](int64_t first, int64_t last) HWY_ATTR {
        norm::Coefficients coefficients[kMostChannels];
        for (int64_t c = first; c < last; ++c) {
          coefficients[c - first] = norm::CoefficientsOf(
              epsilon, mean[c], variance[c], gamma[c], beta[c]);
        }
        ForPieces(shape, images, first, last,
                  [&](int64_t c, int64_t at, size_t n) HWY_ATTR {
                    const V scale = hn::Set(d, coefficients[c - first].scale);
                    const V shift = hn::Set(d, coefficients[c - first].shift);
                    MapPiece(n, x + at, x + at, y + at, [&](V v, V) HWY_ATTR {
                      return hn::MulAdd(v, scale, shift);
                    });
                  });
      });
}

void TrainPlanes(const BatchNormShape& shape, int64_t images, float epsilon,
                 const float* x, const float* gamma, const float* beta,
                 float* y, float* mean, float* variance, int64_t begin,
                 int64_t end) {
  ForChannelsTogether(
      shape, begin, end, [&](int64_t first, int64_t last) HWY_ATTR {
        Moments moments[kMostChannels];
        PieceMerger merger;
        ForPieces(shape, images, first, last,
                  [&](int64_t c, int64_t at, size_t n)
                      HWY_ATTR { merger.Add(n, x + at, moments[c - first]); });
        merger.Flush();
        for (int64_t c = first; c < last; ++c) {
          moments[c - first].Store(mean[c], variance[c]);
        }
        ApplyPlanes(shape, images, epsilon, x, gamma, beta, mean, variance, y,
                    first, last);
      });
}

// What is left of a channel's gradient when its sums are known:
// factor (g − Σg/m − (x − mean) inverse² Σg(x − mean)/m), m = count.
struct GradLine {
  float of_g, offset, of_x, center;

  GradLine() = default;
  GradLine(double factor, double inverse, const TwoSums& sums, double count,
           float mean)
      : of_g(static_cast<float>(factor)),
        offset(static_cast<float>(-factor * sums.first / count)),
        of_x(static_cast<float>(factor * inverse * inverse * sums.second /
                                count)),
        center(mean) {}
};

// Σ g and Σ g (x − mean) of channels [first, last), in sums[0] on.
HWY_INLINE void SumGrads(const BatchNormShape& shape, int64_t images,
                         const float* x, const float* mean, const float* grad_y,
                         int64_t first, int64_t last, TwoSums* sums) {
  const D d;
  ForPieces(shape, images, first, last,
            [&](int64_t c, int64_t at, size_t n) HWY_ATTR {
              const V center = hn::Set(d, mean[c]);
              const TwoSums part =
                  SumPiece(n, x + at, grad_y + at, mean[c],
                           [&](V v, V g, V& a, V& b) HWY_ATTR {
                             a = hn::Add(a, g);
                             b = hn::MulAdd(g, hn::Sub(v, center), b);
                           });
              sums[c - first].first += part.first;
              sums[c - first].second += part.second;
            });
}

void GradPlanes(const BatchNormShape& shape, int64_t images, float epsilon,
                const float* x, const float* gamma, const float* mean,
                const float* variance, const float* grad_y, float* grad_x,
                float* grad_gamma, float* grad_beta, bool accumulate,
                int64_t begin, int64_t end) {
  const D d;
  const auto count = static_cast<double>(images * shape.pixels);
  ForChannelsTogether(
      shape, begin, end, [&](int64_t first, int64_t last) HWY_ATTR {
        TwoSums sums[kMostChannels];
        GradLine lines[kMostChannels];
        SumGrads(shape, images, x, mean, grad_y, first, last, sums);
        for (int64_t c = first; c < last; ++c) {
          const TwoSums& sum = sums[c - first];
          const double inverse =
              1.0 / std::sqrt(static_cast<double>(variance[c]) + epsilon);
          const double old_beta = accumulate ? grad_beta[c] : 0.0;
          const double old_gamma = accumulate ? grad_gamma[c] : 0.0;
          grad_beta[c] = static_cast<float>(old_beta + sum.first);
          grad_gamma[c] = static_cast<float>(old_gamma + sum.second * inverse);
          lines[c - first] =
              GradLine(gamma[c] * inverse, inverse, sum, count, mean[c]);
        }
        if (grad_x == nullptr) return;
        ForPieces(shape, images, first, last,
                  [&](int64_t c, int64_t at, size_t n) HWY_ATTR {
                    const GradLine& line = lines[c - first];
                    const V of_g = hn::Set(d, line.of_g);
                    const V offset = hn::Set(d, line.offset);
                    const V of_x = hn::Set(d, line.of_x);
                    const V center = hn::Set(d, line.center);
                    MapPiece(n, x + at, grad_y + at, grad_x + at,
                             [&](V v, V g) HWY_ATTR {
                               return hn::NegMulAdd(
                                   hn::Sub(v, center), of_x,
                                   hn::MulAdd(g, of_g, offset));
                             });
                  });
      });
}

// ---- Rows of features

HWY_INLINE WideV LoadWide(const float* p, size_t n) {
  const Narrow d;
  return hn::PromoteTo(
      Wide(), n >= hn::Lanes(d) ? hn::LoadU(d, p) : LoadFirst(d, p, n));
}

HWY_INLINE void StoreNarrow(WideV v, float* p, size_t n) {
  const Narrow d;
  const auto rounded = hn::DemoteTo(d, v);
  if (n >= hn::Lanes(d)) {
    hn::StoreU(rounded, d, p);
  } else {
    StoreFirst(rounded, d, p, n);
  }
}

HWY_INLINE void StoreSum(WideV v, bool accumulate, float* p, size_t n) {
  StoreNarrow(accumulate ? hn::Add(LoadWide(p, n), v) : v, p, n);
}

// Calls visit(c, n) for vectors of n channels of [begin, end).
template <typename F>
HWY_INLINE void ForChannelVectors(int64_t begin, int64_t end, const F& visit) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Wide()));
  for (int64_t c = begin; c < end; c += lanes) {
    visit(c, static_cast<size_t>(HWY_MIN(lanes, end - c)));
  }
}

HWY_INLINE WideV DeviationOf(const float* variance, float epsilon, size_t n) {
  return hn::Sqrt(hn::Add(LoadWide(variance, n),
                          hn::Set(Wide(), static_cast<double>(epsilon))));
}

void ApplyRows(const BatchNormShape& shape, int64_t images, float epsilon,
               const float* x, const float* gamma, const float* beta,
               const float* mean, const float* variance, float* y,
               int64_t begin, int64_t end) {
  const Narrow d;
  const size_t lanes = hn::Lanes(d);
  ForChannelVectors(begin, end, [&](int64_t c, size_t n) HWY_ATTR {
    float scales[hn::MaxLanes(Narrow())] = {};
    float shifts[hn::MaxLanes(Narrow())] = {};
    for (size_t i = 0; i < n; ++i) {
      const norm::Coefficients k =
          norm::CoefficientsOf(epsilon, mean[c + static_cast<int64_t>(i)],
                               variance[c + static_cast<int64_t>(i)],
                               gamma[c + static_cast<int64_t>(i)],
                               beta[c + static_cast<int64_t>(i)]);
      scales[i] = k.scale;
      shifts[i] = k.shift;
    }
    const auto scale = hn::LoadU(d, scales);
    const auto shift = hn::LoadU(d, shifts);
    for (int64_t i = 0; i < images; ++i) {
      const int64_t at = i * shape.channels + c;
      const auto v =
          n >= lanes ? hn::LoadU(d, x + at) : LoadFirst(d, x + at, n);
      const auto result = hn::MulAdd(v, scale, shift);
      if (n >= lanes) {
        hn::StoreU(result, d, y + at);
      } else {
        StoreFirst(result, d, y + at, n);
      }
    }
  });
}

void TrainRows(const BatchNormShape& shape, int64_t images, float epsilon,
               const float* x, const float* gamma, const float* beta, float* y,
               float* mean, float* variance, int64_t begin, int64_t end) {
  const Wide d;
  const WideV per_image = hn::Set(d, 1.0 / static_cast<double>(images));
  ForChannelVectors(begin, end, [&](int64_t c, size_t n) HWY_ATTR {
    WideV sum = hn::Zero(d);
    for (int64_t i = 0; i < images; ++i) {
      sum = hn::Add(sum, LoadWide(x + i * shape.channels + c, n));
    }
    const WideV center = hn::Mul(sum, per_image);
    WideV squares = hn::Zero(d);
    for (int64_t i = 0; i < images; ++i) {
      const WideV v = LoadWide(x + i * shape.channels + c, n);
      const WideV off = hn::Sub(v, center);
      squares = hn::MulAdd(off, off, squares);
    }
    StoreNarrow(center, mean + c, n);
    StoreNarrow(hn::Mul(squares, per_image), variance + c, n);
  });
  ApplyRows(shape, images, epsilon, x, gamma, beta, mean, variance, y, begin,
            end);
}

void GradRows(const BatchNormShape& shape, int64_t images, float epsilon,
              const float* x, const float* gamma, const float* mean,
              const float* variance, const float* grad_y, float* grad_x,
              float* grad_gamma, float* grad_beta, bool accumulate,
              int64_t begin, int64_t end) {
  const Wide d;
  const WideV per_image = hn::Set(d, 1.0 / static_cast<double>(images));
  ForChannelVectors(begin, end, [&](int64_t c, size_t n) HWY_ATTR {
    const WideV center = LoadWide(mean + c, n);
    const WideV deviation = DeviationOf(variance + c, epsilon, n);
    WideV sum_g = hn::Zero(d);
    WideV sum_gx = sum_g;
    for (int64_t i = 0; i < images; ++i) {
      const int64_t at = i * shape.channels + c;
      const WideV g = LoadWide(grad_y + at, n);
      sum_g = hn::Add(sum_g, g);
      sum_gx = hn::MulAdd(g, hn::Sub(LoadWide(x + at, n), center), sum_gx);
    }
    const WideV sum_gn = hn::Div(sum_gx, deviation);  // Σ g x̂
    StoreSum(sum_g, accumulate, grad_beta + c, n);
    StoreSum(sum_gn, accumulate, grad_gamma + c, n);
    if (grad_x == nullptr) return;
    const WideV factor = hn::Div(LoadWide(gamma + c, n), deviation);
    const WideV offset = hn::Mul(sum_g, per_image);
    const WideV slope = hn::Div(hn::Mul(sum_gn, per_image), deviation);
    for (int64_t i = 0; i < images; ++i) {
      const int64_t at = i * shape.channels + c;
      const WideV base = hn::Sub(LoadWide(grad_y + at, n), offset);
      const WideV off = hn::Sub(LoadWide(x + at, n), center);
      const WideV inner = hn::NegMulAdd(off, slope, base);
      StoreNarrow(hn::Mul(factor, inner), grad_x + at, n);
    }
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
  const auto run = shape.pixels == 1 ? THIMBLE_DISPATCH(TrainRows).Get()
                                     : THIMBLE_DISPATCH(TrainPlanes).Get();
  const float* from = x.f32();
  float* to = y.f32();
  ForChannels(shape, context, [&](int64_t begin, int64_t end) {
    run(shape, images, epsilon, from, gamma, beta, to, mean, variance, begin,
        end);
  });
}

void BatchNormApply(const BatchNormShape& shape, int64_t images, float epsilon,
                    const ConstTensor& x, const float* gamma, const float* beta,
                    const float* mean, const float* variance, const Tensor& y,
                    const KernelContext& context) {
  const auto run = shape.pixels == 1 ? THIMBLE_DISPATCH(ApplyRows).Get()
                                     : THIMBLE_DISPATCH(ApplyPlanes).Get();
  const float* from = x.f32();
  float* to = y.f32();
  ForChannels(shape, context, [&](int64_t begin, int64_t end) {
    run(shape, images, epsilon, from, gamma, beta, mean, variance, to, begin,
        end);
  });
}

void BatchNormGrad(const BatchNormShape& shape, int64_t images, float epsilon,
                   const ConstTensor& x, const float* gamma, const float* mean,
                   const float* variance, const ConstTensor& grad_y,
                   const Tensor& grad_x, float* grad_gamma, float* grad_beta,
                   const KernelContext& context, bool accumulate) {
  const auto run = shape.pixels == 1 ? THIMBLE_DISPATCH(GradRows).Get()
                                     : THIMBLE_DISPATCH(GradPlanes).Get();
  const float* of_x = x.f32();
  const float* of_y = grad_y.f32();
  float* to = grad_x.f32();
  ForChannels(shape, context, [&](int64_t begin, int64_t end) {
    run(shape, images, epsilon, of_x, gamma, mean, variance, of_y, to,
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
