// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layer_norm/layer_norm.cc"
#include "kernels/layer_norm/layer_norm.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/elements-inl.h"
#include "kernels/target.h"

// Shared by all targets.
#ifndef THIMBLE_KERNELS_LAYER_NORM_CALLS_
#define THIMBLE_KERNELS_LAYER_NORM_CALLS_
namespace thimble::kernels {
namespace {

struct LayerNormCall {
  int64_t features;
  float epsilon;
  ConstTensor x;
  const float* gamma;
  const float* beta;
  Tensor y;
};

struct LayerNormGradCall {
  int64_t features;
  float epsilon;
  ConstTensor x;
  const float* gamma;
  ConstTensor grad_y;
  Tensor grad_x;
};

constexpr int64_t kMostLayerNormLanes = 16;

// Floats of a partial sum of one of the parameters: whole vectors.
constexpr int64_t LayerNormStride(int64_t features) {
  return (features + kMostLayerNormLanes - 1) / kMostLayerNormLanes *
         kMostLayerNormLanes;
}

}  // namespace
}  // namespace thimble::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace thimble::kernels {
namespace HWY_NAMESPACE {
namespace {

// Vectors that are summed beside each other: an addition takes some cycles.
constexpr size_t kChains = 4;

// The lanes past the first n of them, where n is below the number of lanes,
// become zeros.
HWY_INLINE V FirstOf(V v, size_t n) {
  return hn::IfThenElseZero(hn::FirstN(D(), n), v);
}

HWY_INLINE float SumOf(const V (&chains)[kChains]) {
  const V sum =
      hn::Add(hn::Add(chains[0], chains[1]), hn::Add(chains[2], chains[3]));
  return hn::GetLane(hn::SumOfLanes(D(), sum));
}

// Calls add(i, chain) for whole vectors, and rest(i, n) for the n elements of
// the last one that is none.
template <typename F, typename Rest>
HWY_INLINE void ForChains(size_t n, const F& add, const Rest& rest) {
  const size_t lanes = hn::Lanes(D());
  size_t i = 0;
  for (; i + kChains * lanes <= n; i += kChains * lanes) {
    THIMBLE_UNROLL
    for (size_t k = 0; k < kChains; ++k) add(i + k * lanes, k);
  }
  for (; i + lanes <= n; i += lanes) add(i, size_t{0});
  if (i < n) rest(i, n - i);
}

template <typename T>
HWY_INLINE float MeanOf(size_t n, const T* x) {
  const D d;
  V sums[kChains];
  for (V& sum : sums) sum = hn::Zero(d);
  ForChains(
      n,
      [&](size_t i, size_t k)
          HWY_ATTR { sums[k] = hn::Add(sums[k], LoadAs(d, x + i)); },
      [&](size_t i, size_t left) HWY_ATTR {
        sums[0] = hn::Add(sums[0], LoadFirstAs(d, x + i, left));
      });
  return SumOf(sums) / static_cast<float>(n);
}

HWY_INLINE float InverseStd(float squares, size_t n, float epsilon) {
  const double variance = static_cast<double>(squares) / static_cast<double>(n);
  return static_cast<float>(1.0 /
                            std::sqrt(variance + static_cast<double>(epsilon)));
}

// What a row is normalised by.
struct RowMoments {
  V mean, inv_std;

  HWY_INLINE V Normal(V x) const { return hn::Mul(hn::Sub(x, mean), inv_std); }
};

template <typename T>
HWY_INLINE RowMoments MomentsOf(size_t n, float epsilon, const T* x) {
  const D d;
  const V mean = hn::Set(d, MeanOf(n, x));
  V sums[kChains];
  for (V& sum : sums) sum = hn::Zero(d);
  ForChains(
      n,
      [&](size_t i, size_t k) HWY_ATTR {
        const V off = hn::Sub(LoadAs(d, x + i), mean);
        sums[k] = hn::MulAdd(off, off, sums[k]);
      },
      [&](size_t i, size_t left) HWY_ATTR {
        const V off = FirstOf(hn::Sub(LoadFirstAs(d, x + i, left), mean), left);
        sums[0] = hn::MulAdd(off, off, sums[0]);
      });
  return {mean, hn::Set(d, InverseStd(SumOf(sums), n, epsilon))};
}

// The same, with the means of g and of g x̂.
struct RowGradMoments {
  RowMoments of_x;
  V mean_g, mean_product;
};

template <typename T>
HWY_INLINE RowGradMoments GradMomentsOf(size_t n, float epsilon, const T* x,
                                        const float* gamma, const T* grad_y) {
  const D d;
  const V mean = hn::Set(d, MeanOf(n, x));
  V squares[kChains], sums[kChains], products[kChains];
  for (size_t k = 0; k < kChains; ++k) {
    squares[k] = sums[k] = products[k] = hn::Zero(d);
  }
  const auto add = [&](size_t k, V off, V g) HWY_ATTR {
    squares[k] = hn::MulAdd(off, off, squares[k]);
    sums[k] = hn::Add(sums[k], g);
    products[k] = hn::MulAdd(g, off, products[k]);
  };
  ForChains(
      n,
      [&](size_t i, size_t k) HWY_ATTR {
        add(k, hn::Sub(LoadAs(d, x + i), mean),
            hn::Mul(LoadAs(d, grad_y + i), hn::LoadU(d, gamma + i)));
      },
      [&](size_t i, size_t left) HWY_ATTR {
        add(0, FirstOf(hn::Sub(LoadFirstAs(d, x + i, left), mean), left),
            hn::Mul(LoadFirstAs(d, grad_y + i, left),
                    LoadFirst(d, gamma + i, left)));
      });
  const float inv_std = InverseStd(SumOf(squares), n, epsilon);
  const auto count = static_cast<float>(n);
  return {{mean, hn::Set(d, inv_std)},
          hn::Set(d, SumOf(sums) / count),
          hn::Set(d, SumOf(products) * inv_std / count)};
}

void LayerNormRows(int64_t begin, int64_t end, const LayerNormCall& call) {
  const auto n = static_cast<size_t>(call.features);
  WithFloatType(call.y.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    const T* x = call.x.As<T>() + begin * call.features;
    T* y = call.y.As<T>() + begin * call.features;
    for (int64_t r = begin; r < end; ++r, x += n, y += n) {
      const RowMoments moments = MomentsOf(n, call.epsilon, x);
      Map(
          n,
          [&](V v, V gamma, V beta)
              HWY_ATTR { return hn::MulAdd(moments.Normal(v), gamma, beta); },
          y, x, call.gamma, call.beta);
    }
  });
}

// One row. The sums can be read and written up to a whole vector.
template <bool kWithX, typename T>
HWY_INLINE void GradRow(size_t n, const RowGradMoments& moments, const T* x,
                        const float* gamma, const T* grad_y, T* grad_x,
                        float* gamma_sums, float* beta_sums) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const auto add = [&](size_t i, V normal, V grad) HWY_ATTR {
    hn::StoreU(hn::MulAdd(grad, normal, hn::LoadU(d, gamma_sums + i)), d,
               gamma_sums + i);
    hn::StoreU(hn::Add(hn::LoadU(d, beta_sums + i), grad), d, beta_sums + i);
  };
  const auto grad_of = [&](V normal, V g) HWY_ATTR {
    const V rest =
        hn::NegMulAdd(normal, moments.mean_product, hn::Sub(g, moments.mean_g));
    return hn::Mul(rest, moments.of_x.inv_std);
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V normal = moments.of_x.Normal(LoadAs(d, x + i));
    const V grad = LoadAs(d, grad_y + i);
    add(i, normal, grad);
    if constexpr (kWithX) {
      StoreAs(grad_of(normal, hn::Mul(grad, hn::LoadU(d, gamma + i))), d,
              grad_x + i);
    }
  }
  if (i == n) return;
  const V normal = moments.of_x.Normal(LoadFirstAs(d, x + i, n - i));
  const V grad = LoadFirstAs(d, grad_y + i, n - i);
  add(i, normal, grad);
  if constexpr (kWithX) {
    const V g = hn::Mul(grad, LoadFirst(d, gamma + i, n - i));
    StoreFirstAs(grad_of(normal, g), d, grad_x + i, n - i);
  }
}

// Rows [begin, end), and their partial sums: those of gamma, then of beta.
void LayerNormGradRows(int64_t begin, int64_t end,
                       const LayerNormGradCall& call, float* sums) {
  const auto n = static_cast<size_t>(call.features);
  const int64_t stride = LayerNormStride(call.features);
  std::memset(sums, 0, static_cast<size_t>(2 * stride) * sizeof(float));
  WithFloatType(call.x.dtype(), [&](auto type) HWY_ATTR {
    using T = decltype(type);
    const int64_t first = begin * call.features;
    const T* x = call.x.As<T>() + first;
    const T* grad_y = call.grad_y.As<T>() + first;
    const bool with_x = call.grad_x.is_there();
    T* grad_x = with_x ? call.grad_x.As<T>() + first : nullptr;
    for (int64_t r = begin; r < end; ++r, x += n, grad_y += n) {
      if (with_x) {
        const RowGradMoments moments =
            GradMomentsOf(n, call.epsilon, x, call.gamma, grad_y);
        GradRow<true>(n, moments, x, call.gamma, grad_y, grad_x, sums,
                      sums + stride);
        grad_x += n;
      } else {
        const V zero = hn::Zero(D());
        const RowGradMoments moments{MomentsOf(n, call.epsilon, x), zero, zero};
        GradRow<false, T>(n, moments, x, call.gamma, grad_y, nullptr, sums,
                          sums + stride);
      }
    }
  });
}

// total[0, n) += the sums of `count` partials, one after the other.
void MergePartials(int64_t n, int64_t count, int64_t stride,
                   const float* partials, float* total) {
  for (int64_t p = 0; p < count; ++p) {
    MapRow(n, partials + p * stride, total,
           [](V sum, V part) HWY_ATTR { return hn::Add(sum, part); });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::kernels {
namespace {

// Partial sums that are made before they are merged.
constexpr int64_t kPartials = 16;

// Columns that a thread merges at least.
constexpr int64_t kMergedColumns = 128;

int64_t PartialsOf(int64_t rows) {
  return (rows + kLayerNormRows - 1) / kLayerNormRows;
}

}  // namespace

void LayerNorm(int64_t rows, int64_t features, float epsilon,
               const ConstTensor& x, const float* gamma, const float* beta,
               const Tensor& y, const KernelContext& context) {
  TH_CHECK(x.dtype() == y.dtype());
  const LayerNormCall call = {features, epsilon, x, gamma, beta, y};
  const auto run = THIMBLE_DISPATCH(LayerNormRows).Get();
  context.pool->ParallelFor(
      rows, [&](int64_t begin, int64_t end, int) { run(begin, end, call); });
}

Workspace LayerNormGradWorkspace(int64_t rows, int64_t features) {
  const int64_t partials = std::min(kPartials, PartialsOf(rows));
  return {
      .per_thread = 0,
      .shared = static_cast<size_t>(partials * 2 * LayerNormStride(features)) *
                sizeof(float)};
}

void LayerNormGrad(int64_t rows, int64_t features, float epsilon,
                   const ConstTensor& x, const float* gamma,
                   const ConstTensor& grad_y, const Tensor& grad_x,
                   float* grad_gamma, float* grad_beta,
                   const KernelContext& context, bool accumulate) {
  TH_CHECK(x.dtype() == grad_y.dtype() &&
           (!grad_x.is_there() || grad_x.dtype() == x.dtype()));
  const LayerNormGradCall call = {features, epsilon, x, gamma, grad_y, grad_x};
  const auto run = THIMBLE_DISPATCH(LayerNormGradRows).Get();
  const auto merge = THIMBLE_DISPATCH(MergePartials).Get();
  const int64_t stride = LayerNormStride(features);
  auto* partials = context.Shared<float>();
  if (!accumulate) {
    std::fill_n(grad_gamma, features, 0.0f);
    std::fill_n(grad_beta, features, 0.0f);
  }
  for (int64_t first = 0; first < PartialsOf(rows); first += kPartials) {
    const int64_t count = std::min(kPartials, PartialsOf(rows) - first);
    context.pool->ParallelFor(count, [&](int64_t begin, int64_t end, int) {
      for (int64_t p = begin; p < end; ++p) {
        const int64_t row = (first + p) * kLayerNormRows;
        run(row, std::min(rows, row + kLayerNormRows), call,
            partials + p * 2 * stride);
      }
    });
    const int64_t parts = (features + kMergedColumns - 1) / kMergedColumns;
    context.pool->ParallelFor(2 * parts, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const bool of_beta = i >= parts;
        const int64_t column = i % parts * kMergedColumns;
        merge(std::min(kMergedColumns, features - column), count, 2 * stride,
              partials + (of_beta ? stride : 0) + column,
              (of_beta ? grad_beta : grad_gamma) + column);
      }
    });
  }
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
