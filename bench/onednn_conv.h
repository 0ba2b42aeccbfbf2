// SPDX-License-Identifier: Apache-2.0
//
// oneDNN's direct f32 convolution as the yardstick: layouts of its own choice,
// everything reordered before the clock starts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/conv/conv.h"

namespace thimble::bench {

enum class ConvPass { kForward, kGradInput, kGradWeight };

class OneDnnConv {
 public:
  // Inputs are planar (NCHW, OIHW); which two of x, w, grad_y matter depends on
  // the pass.
  OneDnnConv(const kernels::Conv2dShape& shape, int64_t images, ConvPass pass,
             const std::vector<float>& x, const std::vector<float>& w,
             const std::vector<float>& grad_y);
  ~OneDnnConv();
  void Run();
  // The result of the last Run, planar.
  std::vector<float> Result() const;
  // What oneDNN calls the kernel that it chose.
  std::string Implementation() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace thimble::bench
