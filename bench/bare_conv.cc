// SPDX-License-Identifier: Apache-2.0
#include "bare_conv.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

#include "base/check.h"
#include "clock.h"
#include "kernels/conv/conv.h"
#include "ops/conv2d.h"
#include "ops/image_conv.h"
#include "ops/norm_relu_conv.h"

namespace thimble::bench {
namespace {

enum class Pass { kForward, kGradInput, kGradWeight };

struct BareConv {
  Pass pass = Pass::kForward;
  kernels::Conv2dShape shape;
  int64_t images = 0;
  DType x = DType::kF32;       // u8 for images
  DType others = DType::kF32;  // w, y and gradients of activations
  DType grad_w = DType::kF32;
};

const ValueSpec& In(const Graph& graph, const Op& op, uint32_t i) {
  return graph.value(op.inputs[i]).spec;
}

template <typename Def>
const Def* As(const Op& op) {
  return dynamic_cast<const Def*>(op.def.get());
}

DType TypeOf(const ValueSpec& spec) { return spec.storage.dtype; }

std::optional<BareConv> Forward(const Graph& graph, const Op& op) {
  const auto conv = [&](const kernels::Conv2dShape& shape, uint32_t x,
                        uint32_t w) {
    return BareConv{.pass = Pass::kForward,
                    .shape = shape,
                    .images = In(graph, op, x).shape[0],
                    .x = TypeOf(In(graph, op, x)),
                    .others = TypeOf(In(graph, op, w))};
  };
  if (const auto* def = As<ops::Conv2d>(op)) {
    using D = ops::Conv2d;
    return conv(def->ShapeOf(In(graph, op, D::kX), In(graph, op, D::kW)), D::kX,
                D::kW);
  }
  if (const auto* def = As<ops::NormReluConv>(op)) {
    using D = ops::NormReluConv;
    return conv(
        def->geometry().ShapeOf(In(graph, op, D::kX), In(graph, op, D::kW)),
        D::kX, D::kW);
  }
  if (const auto* def = As<ops::ImageConv>(op)) {
    using D = ops::ImageConv;
    return conv(def->geometry().ShapeOf(In(graph, op, D::kImages),
                                        In(graph, op, D::kW)),
                D::kImages, D::kW);
  }
  return std::nullopt;
}

std::optional<BareConv> GradInput(const Graph& graph, const Op& op) {
  const auto conv = [&](const kernels::Conv2dShape& shape, uint32_t grad_y) {
    const ValueSpec& spec = In(graph, op, grad_y);
    return BareConv{.pass = Pass::kGradInput,
                    .shape = shape,
                    .images = spec.shape[0],
                    .x = TypeOf(spec),
                    .others = TypeOf(spec)};
  };
  if (const auto* def = As<ops::Conv2dGradInput>(op)) {
    return conv(def->shape(), ops::Conv2dGradInput::kGradY);
  }
  if (const auto* def = As<ops::NormReluConvGradInput>(op)) {
    using D = ops::NormReluConvGradInput;
    return conv(
        def->geometry().ShapeOf(In(graph, op, D::kX), In(graph, op, D::kW)),
        D::kGradY);
  }
  return std::nullopt;
}

std::optional<BareConv> GradWeight(const Graph& graph, const Op& op) {
  const auto conv = [&](const kernels::Conv2dShape& shape, uint32_t x,
                        uint32_t grad_y) {
    return BareConv{.pass = Pass::kGradWeight,
                    .shape = shape,
                    .images = In(graph, op, x).shape[0],
                    .x = TypeOf(In(graph, op, x)),
                    .others = TypeOf(In(graph, op, grad_y)),
                    .grad_w = TypeOf(graph.value(op.outputs[0]).spec)};
  };
  if (const auto* def = As<ops::Conv2dGradWeight>(op)) {
    using D = ops::Conv2dGradWeight;
    return conv(def->shape(), D::kX, D::kGradY);
  }
  if (const auto* def = As<ops::NormReluConvGradWeight>(op)) {
    using D = ops::NormReluConvGradWeight;
    return conv(def->ShapeOf(In(graph, op, D::kX)), D::kX, D::kGradY);
  }
  if (const auto* def = As<ops::ImageConvGradWeight>(op)) {
    using D = ops::ImageConvGradWeight;
    return conv(def->ShapeOf(In(graph, op, D::kImages)), D::kImages, D::kGradY);
  }
  return std::nullopt;
}

// Small values, none of them 0: some CPUs are quicker with zeros.
std::vector<std::byte> Noise(DType dtype, int64_t elements) {
  std::vector<std::byte> bytes(BytesFor(dtype, elements));
  uint32_t noise = 1;
  for (std::byte& b : bytes) {
    noise = noise * 1664525 + 1013904223;
    b = static_cast<std::byte>(noise >> 24);
  }
  // The highest byte of each float: an exponent near that of 0.01.
  if (dtype == DType::kU8) return bytes;
  const size_t size = BytesFor(dtype, 1);
  for (size_t i = size - 1; i < bytes.size(); i += size) {
    const auto sign = static_cast<uint8_t>(bytes[i]) & 0x80u;
    bytes[i] =
        static_cast<std::byte>(sign | (dtype == DType::kF16 ? 0x20u : 0x3Cu));
  }
  return bytes;
}

double Median(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

double Time(const BareConv& conv, ThreadPool& pool) {
  const kernels::Conv2dShape& s = conv.shape;
  std::vector<std::byte> x =
      Noise(conv.x, conv.images * s.in_channels * s.in_height * s.in_width);
  std::vector<std::byte> y =
      Noise(conv.others,
            conv.images * s.out_channels * s.out_height() * s.out_width());
  const int64_t weights =
      s.out_channels * s.in_channels * s.kernel_h * s.kernel_w;
  std::vector<std::byte> w = Noise(
      conv.pass == Pass::kGradWeight ? conv.grad_w : conv.others, weights);
  // Images are bytes, which the stem has to turn into numbers.
  const std::vector<float> scale(static_cast<size_t>(s.in_channels), 0.01f);
  kernels::KernelContext context;
  context.pool = &pool;
  context.workspace =
      conv.pass == Pass::kForward     ? kernels::Conv2dForwardWorkspace(s)
      : conv.pass == Pass::kGradInput ? kernels::Conv2dGradInputWorkspace(s)
                                      : kernels::Conv2dGradWeightWorkspace(s);
  const size_t scratch = TotalBytes(context.workspace, pool.threads());
  const std::unique_ptr<std::byte, decltype(&std::free)> bytes(
      static_cast<std::byte*>(
          std::aligned_alloc(kAlignment, std::max(scratch, kAlignment))),
      &std::free);
  context.scratch = bytes.get();
  kernels::Conv2dInput input{.x = {x.data(), conv.x}};
  if (conv.x == DType::kU8) {
    input.scale = scale.data();
    input.shift = scale.data();
  }
  const auto run = [&] {
    if (conv.pass == Pass::kForward) {
      Conv2dForward(s, conv.images, input, {w.data(), conv.others},
                    {.to = {y.data(), conv.others}}, context);
    } else if (conv.pass == Pass::kGradInput) {
      Conv2dGradInput(s, conv.images, {y.data(), conv.others},
                      {w.data(), conv.others}, {.to = {x.data(), conv.x}},
                      context);
    } else {
      Conv2dGradWeight(s, conv.images, input, {y.data(), conv.others},
                       {.to = {w.data(), conv.grad_w}}, context);
    }
  };
  run();
  constexpr int kRuns = 15;
  std::vector<double> seconds;
  for (int i = 0; i < kRuns; ++i) {
    const double begin = Now(/*cpu=*/false);
    run();
    seconds.push_back(Now(/*cpu=*/false) - begin);
  }
  return Median(std::move(seconds));
}

}  // namespace

BareConvTimer::BareConvTimer(int threads) {
  auto pool = ThreadPool::Create(threads);
  TH_CHECK(pool.ok());
  pool_ = *std::move(pool);
}

double BareConvTimer::Seconds(const Graph& graph, const Op& op) {
  std::optional<BareConv> conv = Forward(graph, op);
  if (!conv.has_value()) conv = GradInput(graph, op);
  if (!conv.has_value()) conv = GradWeight(graph, op);
  if (!conv.has_value()) return 0;
  const kernels::Conv2dShape& s = conv->shape;
  const Key key = {static_cast<int64_t>(conv->pass),
                   conv->images,
                   static_cast<int64_t>(conv->x),
                   static_cast<int64_t>(conv->others),
                   static_cast<int64_t>(conv->grad_w),
                   s.in_channels,
                   s.in_height,
                   s.in_width,
                   s.out_channels,
                   s.kernel_h,
                   s.stride,
                   s.padding};
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  return known_[key] = Time(*conv, *pool_);
}

}  // namespace thimble::bench
