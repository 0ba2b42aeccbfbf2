// SPDX-License-Identifier: Apache-2.0
#include "onednn_conv.h"

#include <cstring>
#include <dnnl.hpp>
#include <string>
#include <unordered_map>

namespace thimble::bench {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

memory::desc Desc(const memory::dims& dims, Tag tag) {
  return {dims, memory::data_type::f32, tag};
}

}  // namespace

struct OneDnnConv::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::primitive primitive;
  std::unordered_map<int, memory> arguments;
  int output = 0;
  memory::desc planar_output;
  std::string implementation;

  // A tensor in the layout `wanted`, filled from planar values.
  memory Reordered(const std::vector<float>& values, const memory::desc& planar,
                   const memory::desc& wanted) {
    memory from(planar, engine);
    std::memcpy(from.get_data_handle(), values.data(),
                values.size() * sizeof(float));
    memory to(wanted, engine);
    dnnl::reorder(from, to).execute(stream, from, to);
    stream.wait();
    return to;
  }
};

OneDnnConv::OneDnnConv(const kernels::Conv2dShape& s, int64_t images,
                       ConvPass pass, const std::vector<float>& x,
                       const std::vector<float>& w,
                       const std::vector<float>& grad_y)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  const memory::dims x_dims{images, s.in_channels, s.in_height, s.in_width};
  const memory::dims w_dims{s.out_channels, s.in_channels, s.kernel_h,
                            s.kernel_w};
  const memory::dims y_dims{images, s.out_channels, s.out_height(),
                            s.out_width()};
  const memory::dims strides{s.stride, s.stride};
  const memory::dims padding{s.padding, s.padding};
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const auto any = [](const memory::dims& dims) {
    return Desc(dims, Tag::any);
  };
  const dnnl::convolution_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, algorithm, any(x_dims), any(w_dims),
       any(y_dims), strides, padding, padding},
      state.engine);
  const memory::desc x_planar = Desc(x_dims, Tag::nchw);
  const memory::desc w_planar = Desc(w_dims, Tag::oihw);
  const memory::desc y_planar = Desc(y_dims, Tag::nchw);
  if (pass == ConvPass::kForward) {
    state.implementation = forward.impl_info_str();
    state.primitive = dnnl::convolution_forward(forward);
    state.arguments = {
        {DNNL_ARG_SRC, state.Reordered(x, x_planar, forward.src_desc())},
        {DNNL_ARG_WEIGHTS,
         state.Reordered(w, w_planar, forward.weights_desc())},
        {DNNL_ARG_DST, memory(forward.dst_desc(), state.engine)}};
    state.output = DNNL_ARG_DST;
    state.planar_output = y_planar;
  } else if (pass == ConvPass::kGradInput) {
    const dnnl::convolution_backward_data::primitive_desc backward(
        {algorithm, any(x_dims), any(w_dims), any(y_dims), strides, padding,
         padding},
        state.engine, forward);
    state.implementation = backward.impl_info_str();
    state.primitive = dnnl::convolution_backward_data(backward);
    state.arguments = {
        {DNNL_ARG_DIFF_DST,
         state.Reordered(grad_y, y_planar, backward.diff_dst_desc())},
        {DNNL_ARG_WEIGHTS,
         state.Reordered(w, w_planar, backward.weights_desc())},
        {DNNL_ARG_DIFF_SRC, memory(backward.diff_src_desc(), state.engine)}};
    state.output = DNNL_ARG_DIFF_SRC;
    state.planar_output = x_planar;
  } else {
    const dnnl::convolution_backward_weights::primitive_desc backward(
        {algorithm, any(x_dims), any(w_dims), any(y_dims), strides, padding,
         padding},
        state.engine, forward);
    state.implementation = backward.impl_info_str();
    state.primitive = dnnl::convolution_backward_weights(backward);
    state.arguments = {
        {DNNL_ARG_SRC, state.Reordered(x, x_planar, backward.src_desc())},
        {DNNL_ARG_DIFF_DST,
         state.Reordered(grad_y, y_planar, backward.diff_dst_desc())},
        {DNNL_ARG_DIFF_WEIGHTS,
         memory(backward.diff_weights_desc(), state.engine)}};
    state.output = DNNL_ARG_DIFF_WEIGHTS;
    state.planar_output = w_planar;
  }
}

OneDnnConv::~OneDnnConv() = default;

void OneDnnConv::Run() {
  state_->primitive.execute(state_->stream, state_->arguments);
  state_->stream.wait();
}

std::vector<float> OneDnnConv::Result() const {
  State& state = *state_;
  memory from = state.arguments.at(state.output);
  memory to(state.planar_output, state.engine);
  dnnl::reorder(from, to).execute(state.stream, from, to);
  state.stream.wait();
  const auto* values = static_cast<const float*>(to.get_data_handle());
  return {values, values + state.planar_output.get_size() / sizeof(float)};
}

std::string OneDnnConv::Implementation() const {
  return state_->implementation;
}

}  // namespace thimble::bench
