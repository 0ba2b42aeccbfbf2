// SPDX-License-Identifier: Apache-2.0
//
// Batch norm and pooling, whose layout is a choice.
#include "onednn_peer.h"
#include "onednn_primitive.h"

namespace thimble::bench {
namespace {

Tag TagOf(ImageLayout layout) {
  switch (layout) {
    case ImageLayout::kPlanar:
      return Tag::nchw;
    case ImageLayout::kChannelsLast:
      return Tag::nhwc;
    case ImageLayout::kBlocked8:
      return Tag::nChw8c;
    case ImageLayout::kBlocked16:
      return Tag::nChw16c;
  }
  return Tag::undef;
}

dnnl::memory::dims DimsOf(const ImagesSize& s) {
  return {s.images, s.channels, s.height, s.width};
}

}  // namespace

std::unique_ptr<Side> OneDnnBatchNorm(const ImagesSize& s, PassOf pass,
                                      ImageLayout layout) {
  constexpr float kEpsilon = 1e-5f;
  constexpr auto kFlags = dnnl::normalization_flags::use_scale_shift;
  auto side = std::make_unique<OneDnnSide>();
  const auto planar = F32(DimsOf(s), Tag::nchw);
  const auto x = F32(DimsOf(s), TagOf(layout));
  const auto both = F32({2, s.channels}, Tag::nc);
  const dnnl::batch_normalization_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, x, kEpsilon, kFlags}, side->engine());
  side->Put(DNNL_ARG_SRC, Values(s.elements(), 1), planar, x);
  side->Put(DNNL_ARG_SCALE_SHIFT, Values(2 * s.channels, 2), both, both);
  side->PutEmpty(DNNL_ARG_MEAN, forward.mean_desc());
  side->PutEmpty(DNNL_ARG_VARIANCE, forward.variance_desc());
  side->PutEmpty(DNNL_ARG_DST, x);
  side->Set(dnnl::batch_normalization_forward(forward), forward.impl_info_str(),
            DNNL_ARG_DST, planar);
  if (pass == PassOf::kForward) return side;
  side->Run();  // backward reads mean and variance
  const dnnl::batch_normalization_backward::primitive_desc pd(
      {dnnl::prop_kind::backward, x, x, kEpsilon, kFlags}, side->engine(),
      forward);
  side->Put(DNNL_ARG_DIFF_DST, Values(s.elements(), 3), planar, x);
  side->PutEmpty(DNNL_ARG_DIFF_SRC, x);
  side->PutEmpty(DNNL_ARG_DIFF_SCALE_SHIFT, both);
  side->Set(dnnl::batch_normalization_backward(pd), pd.impl_info_str(),
            DNNL_ARG_DIFF_SRC, planar);
  return side;
}

std::unique_ptr<Side> OneDnnPool(const ImagesSize& s, const WindowSize& w,
                                 PoolKind kind, PassOf pass,
                                 ImageLayout layout) {
  const bool is_max = kind == PoolKind::kMax;
  const auto algorithm = is_max ? dnnl::algorithm::pooling_max
                                : dnnl::algorithm::pooling_avg_include_padding;
  auto side = std::make_unique<OneDnnSide>();
  const ImagesSize out = {s.images, s.channels, w.Out(s.height),
                          w.Out(s.width)};
  const auto planar_x = F32(DimsOf(s), Tag::nchw);
  const auto planar_y = F32(DimsOf(out), Tag::nchw);
  const auto x = F32(DimsOf(s), TagOf(layout));
  const auto y = F32(DimsOf(out), TagOf(layout));
  const dnnl::memory::dims strides = {w.stride, w.stride};
  const dnnl::memory::dims kernel = {w.kernel, w.kernel};
  const dnnl::memory::dims padding = {w.padding, w.padding};
  const dnnl::pooling_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, algorithm, x, y, strides, kernel,
       padding, padding},
      side->engine());
  side->Put(DNNL_ARG_SRC, Values(s.elements(), 1), planar_x, x);
  side->PutEmpty(DNNL_ARG_DST, y);
  if (is_max) side->PutEmpty(DNNL_ARG_WORKSPACE, forward.workspace_desc());
  side->Set(dnnl::pooling_forward(forward), forward.impl_info_str(),
            DNNL_ARG_DST, planar_y);
  if (pass == PassOf::kForward) return side;
  side->Run();  // backward reads who won
  const dnnl::pooling_backward::primitive_desc pd(
      {algorithm, x, y, strides, kernel, padding, padding}, side->engine(),
      forward);
  side->Put(DNNL_ARG_DIFF_DST, Values(out.elements(), 2), planar_y, y);
  side->PutEmpty(DNNL_ARG_DIFF_SRC, x);
  side->Set(dnnl::pooling_backward(pd), pd.impl_info_str(), DNNL_ARG_DIFF_SRC,
            planar_x);
  return side;
}

}  // namespace thimble::bench
