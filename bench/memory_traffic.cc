// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "memory_traffic.cc"
#include "memory_traffic.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cstdint>

#include "kernels/target.h"

HWY_BEFORE_NAMESPACE();
namespace thimble::bench {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// What is left behind the last whole round is not touched: at most some
// hundred bytes of a megabyte.
constexpr int kChains = 8;

void ReadAll(const float* from, int64_t n, float* sum) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> acc[kChains];
  for (auto& a : acc) a = hn::Zero(d);
  for (int64_t i = 0; i + kChains * lanes <= n; i += kChains * lanes) {
    for (int k = 0; k < kChains; ++k) {
      acc[k] = hn::Add(acc[k], hn::LoadU(d, from + i + k * lanes));
    }
  }
  for (int k = 1; k < kChains; ++k) acc[0] = hn::Add(acc[0], acc[k]);
  *sum = hn::GetLane(hn::SumOfLanes(d, acc[0]));
}

void WriteAll(float value, int64_t n, float* to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto v = hn::Set(d, value);
  for (int64_t i = 0; i + kChains * lanes <= n; i += kChains * lanes) {
    for (int k = 0; k < kChains; ++k) hn::StoreU(v, d, to + i + k * lanes);
  }
}

void CopyAll(const float* from, int64_t n, float* to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i + kChains * lanes <= n; i += kChains * lanes) {
    for (int k = 0; k < kChains; ++k) {
      const int64_t at = i + k * lanes;
      hn::StoreU(hn::LoadU(d, from + at), d, to + at);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace thimble::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace thimble::bench {
namespace {

constexpr size_t kApart = 64;  // floats between two threads' sums

}  // namespace

TrafficRun::TrafficRun(Traffic traffic, size_t bytes, ThreadPool* pool)
    : traffic_(traffic),
      pool_(pool),
      values_(bytes / sizeof(float), 1.0f),
      sums_(kApart * static_cast<size_t>(pool->threads())) {}

void TrafficRun::Run() {
  const auto read = THIMBLE_DISPATCH(ReadAll).Get();
  const auto write = THIMBLE_DISPATCH(WriteAll).Get();
  const auto copy = THIMBLE_DISPATCH(CopyAll).Get();
  const auto all = static_cast<int64_t>(values_.size());
  const int64_t n = traffic_ == Traffic::kCopy ? all / 2 : all;
  pool_->ParallelFor(n, [&](int64_t begin, int64_t end, int thread) {
    float* values = values_.data();
    float* sum = &sums_[kApart * static_cast<size_t>(thread)];
    switch (traffic_) {
      case Traffic::kRead:
        return read(values + begin, end - begin, sum);
      case Traffic::kWrite:
        return write(*sum, end - begin, values + begin);
      case Traffic::kCopy:
        return copy(values + begin, end - begin, values + n + begin);
    }
  });
}

}  // namespace thimble::bench
#endif  // HWY_ONCE
