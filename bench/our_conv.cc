// SPDX-License-Identifier: Apache-2.0
#include "our_conv.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace thimble::bench {
namespace {

using kernels::Conv2dShape;

// Multiples of 1/128 in [-1, 1) as 16 bits: nothing is rounded.
uint16_t ToHalf(DType dtype, float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (dtype == DType::kBF16) return static_cast<uint16_t>(bits >> 16);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude == 0) return 0;
  return static_cast<uint16_t>(((bits >> 16) & 0x8000u) |
                               ((magnitude - (112u << 23)) >> 13));
}

float FromHalf(DType dtype, uint16_t half) {
  if (dtype == DType::kBF16) {
    return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
  }
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 1023;
  const float magnitude =
      exponent == 31 ? INFINITY
      : exponent == 0
          ? std::ldexp(static_cast<float>(fraction), -24)
          : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

std::vector<std::byte> Encode(DType dtype, const std::vector<float>& values) {
  const auto n = static_cast<int64_t>(values.size());
  std::vector<std::byte> bytes(BytesFor(dtype, n));
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kF32) {
      std::memcpy(&bytes[4 * i], &values[i], 4);
    } else if (dtype == DType::kU8) {
      bytes[i] = static_cast<std::byte>(values[i]);
    } else {
      const uint16_t half = ToHalf(dtype, values[i]);
      std::memcpy(&bytes[2 * i], &half, 2);
    }
  }
  return bytes;
}

}  // namespace

OurConv::OurConv(const Conv2dShape& shape, int64_t images, ConvPass pass,
                 const OurForm& form, ThreadPool* pool,
                 const std::vector<float>& x, const std::vector<float>& w,
                 const std::vector<float>& grad_y)
    : shape_(shape), images_(images), pass_(pass), form_(form) {
  const auto channels = static_cast<size_t>(shape.in_channels);
  scale_.assign(channels, form.images ? 1.0f / 128.0f : 1.0f);
  shift_.assign(channels, form.images && !form.fused ? -1.0f : 0.0f);
  mean_.assign(channels, 0.0f);
  inv_std_.assign(channels, 1.0f);
  std::vector<float> bytes = x;
  for (float& b : bytes) b = b * 128.0f + (form.fused ? 0.0f : 128.0f);
  x_ = form.images ? Encode(DType::kU8, bytes) : Encode(form.dtype, x);
  w_ = Encode(form.dtype, w);
  grad_y_ = Encode(form.dtype, grad_y);
  const kernels::Conv2dReduction reduction{form.fused, images};
  switch (pass) {
    case ConvPass::kForward:
      context_.workspace = Conv2dForwardWorkspace(shape, reduction);
      result_.resize(grad_y_.size());
      residual_.resize(grad_y_.size());
      break;
    case ConvPass::kGradInput:
      context_.workspace = Conv2dGradInputWorkspace(shape, reduction);
      result_.resize(x_.size());
      break;
    case ConvPass::kGradWeight:
      context_.workspace = Conv2dGradWeightWorkspace(shape);
      result_.resize(w_.size());
      break;
  }
  const int64_t most = std::max(shape.in_channels, shape.out_channels);
  for (auto& sums : statistics_) sums.resize(static_cast<size_t>(most));
  context_.pool = pool;
  const size_t scratch = TotalBytes(context_.workspace, pool->threads());
  context_.scratch = static_cast<std::byte*>(
      std::aligned_alloc(kAlignment, std::max(scratch, kAlignment)));
}

OurConv::~OurConv() { std::free(context_.scratch); }

void OurConv::Run() {
  const bool prologue = form_.fused || form_.images;
  const DType dtype = form_.dtype;
  const kernels::ConstTensor stored_x{x_.data(),
                                      form_.images ? DType::kU8 : dtype};
  kernels::Conv2dInput x{.x = stored_x};
  if (prologue) {
    x.scale = scale_.data();
    x.shift = shift_.data();
    x.relu = !form_.images;
  }
  const kernels::ConstTensor w{w_.data(), dtype};
  const kernels::ConstTensor grad_y{grad_y_.data(), dtype};
  const kernels::Tensor result{result_.data(), dtype};
  if (pass_ == ConvPass::kForward) {
    kernels::Conv2dOutput y{.to = result};
    if (form_.fused) {
      y.residual = {residual_.data(), dtype};
      y.mean = statistics_[0].data();
      y.variance = statistics_[1].data();
    }
    Conv2dForward(shape_, images_, x, w, y, context_);
  } else if (pass_ == ConvPass::kGradInput) {
    kernels::Conv2dGradInputTarget grad_x{.to = result};
    if (form_.fused) {
      grad_x.x = stored_x;
      grad_x.scale = scale_.data();
      grad_x.shift = shift_.data();
      grad_x.mean = mean_.data();
      grad_x.inv_std = inv_std_.data();
      grad_x.grad_gamma = statistics_[0].data();
      grad_x.grad_beta = statistics_[1].data();
    }
    Conv2dGradInput(shape_, images_, grad_y, w, grad_x, context_);
  } else {
    Conv2dGradWeight(shape_, images_, x, grad_y, {.to = result}, context_);
  }
}

std::vector<float> OurConv::Result() const {
  if (form_.dtype == DType::kF32) {
    std::vector<float> values(result_.size() / 4);
    std::memcpy(values.data(), result_.data(), result_.size());
    return values;
  }
  std::vector<float> values(result_.size() / 2);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, &result_[2 * i], 2);
    values[i] = FromHalf(form_.dtype, half);
  }
  return values;
}

size_t OurConv::WorkspacePerThread() const {
  const int threads = context_.pool->threads();
  return TotalBytes(context_.workspace, threads) / static_cast<size_t>(threads);
}

}  // namespace thimble::bench
