// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "function_rate.cc"
#include "function_rate.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "hwy/contrib/math/math-inl.h"
#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::bench {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

void ExpAll(const float* from, int n, float* to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int>(hn::Lanes(d));
  for (int i = 0; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Exp(d, hn::LoadU(d, from + i)), d, to + i);
  }
}

void TanhAll(const float* from, int n, float* to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int>(hn::Lanes(d));
  for (int i = 0; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Tanh(d, hn::LoadU(d, from + i)), d, to + i);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::bench {

FunctionRun::FunctionRun(Function function, ThreadPool* pool)
    : function_(function),
      pool_(pool),
      from_(static_cast<size_t>(kValues * pool->threads())),
      to_(from_.size()) {
  for (size_t i = 0; i < from_.size(); ++i) {
    from_[i] = -static_cast<float>(i % kValues) / kValues;
  }
}

void FunctionRun::Run() {
  const auto run = function_ == Function::kExp
                       ? THIMBLE_DISPATCH(ExpAll).Get()
                       : THIMBLE_DISPATCH(TanhAll).Get();
  pool_->ParallelFor(pool_->threads(), [&](int64_t begin, int64_t end, int) {
    for (int64_t share = begin; share < end; ++share) {
      for (int round = 0; round < kRounds; ++round) {
        run(&from_[static_cast<size_t>(share * kValues)], kValues,
            &to_[static_cast<size_t>(share * kValues)]);
      }
    }
  });
}

}  // namespace thimble::bench
#endif  // HWY_ONCE
