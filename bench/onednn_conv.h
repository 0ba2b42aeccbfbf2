// SPDX-License-Identifier: Apache-2.0
//
// oneDNN's convolutions as the yardstick: layouts of its own choice,
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
  // All that oneDNN has for this convolution, except its references: each
  // algorithm (direct, Winograd, its own choice) in each implementation. With a
  // name, only that algorithm. All tensors are of one type, f32 or bf16. Inputs
  // are planar (NCHW, OIHW); which two of x, w, grad_y matter depends on the
  // pass.
  static std::vector<OneDnnConv> All(const kernels::Conv2dShape& shape,
                                     int64_t images, ConvPass pass, DType dtype,
                                     const std::string& algorithm,
                                     const std::vector<float>& x,
                                     const std::vector<float>& w,
                                     const std::vector<float>& grad_y);
  // Whether it is the name of an algorithm.
  static bool IsAlgorithm(const std::string& name);
  // Of the library that is linked, as 2.6.3.
  static std::string Version();

  ~OneDnnConv();
  OneDnnConv(OneDnnConv&&) noexcept;
  OneDnnConv& operator=(OneDnnConv&&) noexcept;

  void Run();
  // The result of the last Run, planar.
  std::vector<float> Result() const;
  // The algorithm, and what oneDNN calls the kernel.
  std::string Implementation() const;

 private:
  struct State;
  explicit OneDnnConv(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace thimble::bench
