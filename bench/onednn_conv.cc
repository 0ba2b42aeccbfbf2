// SPDX-License-Identifier: Apache-2.0
#include "onednn_conv.h"

#include <cstring>
#include <dnnl.hpp>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

namespace thimble::bench {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

struct Algorithm {
  const char* name;
  dnnl::algorithm value;
};
constexpr Algorithm kAlgorithms[] = {
    {"direct", dnnl::algorithm::convolution_direct},
    {"winograd", dnnl::algorithm::convolution_winograd},
    {"auto", dnnl::algorithm::convolution_auto},
};

memory::desc Desc(const memory::dims& dims, Tag tag) {
  return {dims, memory::data_type::f32, tag};
}

// In the layout that oneDNN chooses.
memory::desc AnyDesc(const memory::dims& dims, DType dtype) {
  const auto type =
      dtype == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
  return {dims, type, Tag::any};
}

// One of the two tensors that a pass reads.
struct Input {
  int argument;
  const std::vector<float>& values;
  memory::dims dims;
  Tag planar;
};

// A pass by its tensors.
struct PassTensors {
  Input first;
  Input second;
  int output;
  memory::dims output_dims;
  Tag output_planar;
};

// A convolution whose layouts oneDNN chooses.
struct Layouts {
  memory::desc x, w, y;
  memory::dims strides, padding;
};

// Plain loops, and what falls back to them.
bool IsReference(const std::string& implementation) {
  return implementation.find("ref") != std::string::npos;
}

}  // namespace

struct OneDnnConv::State {
  dnnl::engine engine;
  dnnl::stream stream;
  dnnl::primitive primitive;
  std::unordered_map<int, memory> arguments;
  int output = 0;
  memory::desc planar_output;
  std::string implementation;

  explicit State(const dnnl::engine& e) : engine(e), stream(e) {}

  // A tensor in the layout `wanted`, filled from planar values.
  memory Reordered(const Input& input, const memory::desc& wanted) {
    memory from(Desc(input.dims, input.planar), engine);
    std::memcpy(from.get_data_handle(), input.values.data(),
                input.values.size() * sizeof(float));
    memory to(wanted, engine);
    dnnl::reorder(from, to).execute(stream, from, to);
    stream.wait();
    return to;
  }

  // Makes `primitive`, with its tensors in the layouts that it asks for.
  template <typename Primitive>
  void Prepare(const typename Primitive::primitive_desc& description,
               const PassTensors& tensors) {
    const auto wanted = [&](int argument) {
      return description.query_md(dnnl::query::exec_arg_md, argument);
    };
    primitive = Primitive(description);
    for (const Input* input : {&tensors.first, &tensors.second}) {
      arguments[input->argument] = Reordered(*input, wanted(input->argument));
    }
    output = tensors.output;
    arguments[output] = memory(wanted(output), engine);
    planar_output = Desc(tensors.output_dims, tensors.output_planar);
  }

  // Adds what oneDNN has besides `seen`, beginning with `description`.
  template <typename Primitive>
  static void AddAll(typename Primitive::primitive_desc description,
                     const dnnl::engine& engine, const char* algorithm,
                     const PassTensors& tensors, std::set<std::string>& seen,
                     std::vector<OneDnnConv>& all) {
    do {
      const std::string name = description.impl_info_str();
      if (IsReference(name) || !seen.insert(name).second) continue;
      auto state = std::make_unique<State>(engine);
      state->Prepare<Primitive>(description, tensors);
      state->implementation = std::string(algorithm) + " " + name;
      all.push_back(OneDnnConv(std::move(state)));
    } while (description.next_impl());
  }

  // Throws where oneDNN does not have the algorithm for this convolution.
  static void AddAlgorithm(const Algorithm& algorithm, ConvPass pass,
                           const Layouts& any, const PassTensors& tensors,
                           std::set<std::string>& seen,
                           std::vector<OneDnnConv>& all) {
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    const dnnl::convolution_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, algorithm.value, any.x, any.w,
         any.y, any.strides, any.padding, any.padding},
        engine);
    if (pass == ConvPass::kForward) {
      AddAll<dnnl::convolution_forward>(forward, engine, algorithm.name,
                                        tensors, seen, all);
    } else if (pass == ConvPass::kGradInput) {
      AddAll<dnnl::convolution_backward_data>(
          {{algorithm.value, any.x, any.w, any.y, any.strides, any.padding,
            any.padding},
           engine,
           forward},
          engine, algorithm.name, tensors, seen, all);
    } else {
      AddAll<dnnl::convolution_backward_weights>(
          {{algorithm.value, any.x, any.w, any.y, any.strides, any.padding,
            any.padding},
           engine,
           forward},
          engine, algorithm.name, tensors, seen, all);
    }
  }
};

OneDnnConv::OneDnnConv(std::unique_ptr<State> state)
    : state_(std::move(state)) {}
OneDnnConv::~OneDnnConv() = default;
OneDnnConv::OneDnnConv(OneDnnConv&&) noexcept = default;
OneDnnConv& OneDnnConv::operator=(OneDnnConv&&) noexcept = default;

std::vector<OneDnnConv> OneDnnConv::All(
    const kernels::Conv2dShape& s, int64_t images, ConvPass pass, DType dtype,
    const std::string& algorithm, const std::vector<float>& x,
    const std::vector<float>& w, const std::vector<float>& grad_y) {
  const memory::dims x_dims{images, s.in_channels, s.in_height, s.in_width};
  const memory::dims w_dims{s.out_channels, s.in_channels, s.kernel_h,
                            s.kernel_w};
  const memory::dims y_dims{images, s.out_channels, s.out_height(),
                            s.out_width()};
  const PassTensors tensors =
      pass == ConvPass::kForward
          ? PassTensors{{DNNL_ARG_SRC, x, x_dims, Tag::nchw},
                        {DNNL_ARG_WEIGHTS, w, w_dims, Tag::oihw},
                        DNNL_ARG_DST,
                        y_dims,
                        Tag::nchw}
      : pass == ConvPass::kGradInput
          ? PassTensors{{DNNL_ARG_DIFF_DST, grad_y, y_dims, Tag::nchw},
                        {DNNL_ARG_WEIGHTS, w, w_dims, Tag::oihw},
                        DNNL_ARG_DIFF_SRC,
                        x_dims,
                        Tag::nchw}
          : PassTensors{{DNNL_ARG_SRC, x, x_dims, Tag::nchw},
                        {DNNL_ARG_DIFF_DST, grad_y, y_dims, Tag::nchw},
                        DNNL_ARG_DIFF_WEIGHTS,
                        w_dims,
                        Tag::oihw};
  const Layouts layouts{AnyDesc(x_dims, dtype),
                        AnyDesc(w_dims, dtype),
                        AnyDesc(y_dims, dtype),
                        {s.stride, s.stride},
                        {s.padding, s.padding}};
  std::vector<OneDnnConv> all;
  std::set<std::string> seen;
  for (const Algorithm& each : kAlgorithms) {
    if (!algorithm.empty() && algorithm != each.name) continue;
    try {
      State::AddAlgorithm(each, pass, layouts, tensors, seen, all);
    } catch (const dnnl::error& error) {
      // Winograd, say, is there for few shapes.
      if (error.status != dnnl_unimplemented) throw;
    }
  }
  return all;
}

bool OneDnnConv::IsAlgorithm(const std::string& name) {
  for (const Algorithm& each : kAlgorithms) {
    if (name == each.name) return true;
  }
  return false;
}

std::string OneDnnConv::Version() {
  const dnnl_version_t* version = dnnl_version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) +
         "." + std::to_string(version->patch);
}

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
