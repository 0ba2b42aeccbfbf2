// SPDX-License-Identifier: Apache-2.0
//
// What the oneDNN sides share: a primitive with its tensors. Only for
// bench/onednn_*.cc.
#pragma once

#include <cstring>
#include <dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/cases.h"

namespace thimble::bench {

using Tag = dnnl::memory::format_tag;

inline dnnl::memory::desc F32(const dnnl::memory::dims& dims, Tag tag) {
  return {dims, dnnl::memory::data_type::f32, tag};
}

class OneDnnSide final : public Side {
 public:
  OneDnnSide() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  const dnnl::engine& engine() const { return engine_; }

  // A tensor in the layout `wanted`, filled from values in that of `planar`.
  void Put(int argument, const std::vector<float>& values,
           const dnnl::memory::desc& planar, const dnnl::memory::desc& wanted) {
    dnnl::memory from(planar, engine_);
    std::memcpy(from.get_data_handle(), values.data(),
                values.size() * sizeof(float));
    dnnl::memory to(wanted, engine_);
    dnnl::reorder(from, to).execute(stream_, from, to);
    stream_.wait();
    arguments_[argument] = to;
  }
  void Put(int argument, const dnnl::memory& tensor) {
    arguments_[argument] = tensor;
  }
  void PutEmpty(int argument, const dnnl::memory::desc& desc) {
    arguments_[argument] = dnnl::memory(desc, engine_);
  }
  const dnnl::memory& Get(int argument) const {
    return arguments_.at(argument);
  }

  // The result is `output`, which is reordered to `planar` to be compared.
  void Set(const dnnl::primitive& primitive, std::string implementation,
           int output, const dnnl::memory::desc& planar) {
    primitive_ = primitive;
    implementation_ = std::move(implementation);
    output_ = output;
    planar_ = planar;
  }

  void Run() override {
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

  std::vector<float> Result() const override {
    dnnl::memory from = arguments_.at(output_);
    dnnl::memory to(planar_, engine_);
    dnnl::stream stream(engine_);
    dnnl::reorder(from, to).execute(stream, from, to);
    stream.wait();
    const auto* values = static_cast<const float*>(to.get_data_handle());
    return {values, values + planar_.get_size() / sizeof(float)};
  }

  std::string Implementation() const override { return implementation_; }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
  std::string implementation_;
  int output_ = 0;
  dnnl::memory::desc planar_;
};

}  // namespace thimble::bench
