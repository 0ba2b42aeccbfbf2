// SPDX-License-Identifier: Apache-2.0
//
// One pass of one layer on our side: tensors as we store them, scratch, and how
// to run it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/conv/conv.h"
#include "onednn_conv.h"

namespace thimble::bench {

struct OurForm {
  DType dtype = DType::kF32;  // of all tensors
  bool images = false;        // x is bytes: x * 128 + 128, or x * 128 if fused
  bool fused = false;         // with prologue, residual and reductions
};

class OurConv {
 public:
  // REQUIRES: values are multiples of 1/128 in [-1, 1), which every type holds;
  // x is positive where it is fused, so that relu and its mask change nothing.
  OurConv(const kernels::Conv2dShape& shape, int64_t images, ConvPass pass,
          const OurForm& form, ThreadPool* pool, const std::vector<float>& x,
          const std::vector<float>& w, const std::vector<float>& grad_y);
  ~OurConv();
  OurConv(const OurConv&) = delete;
  OurConv& operator=(const OurConv&) = delete;

  void Run();
  // The result of the last Run.
  std::vector<float> Result() const;
  // The planned scratch, what is shared divided among the threads.
  size_t WorkspacePerThread() const;

 private:
  kernels::Conv2dShape shape_;
  int64_t images_;
  ConvPass pass_;
  OurForm form_;
  kernels::KernelContext context_;
  std::vector<std::byte> x_, w_, grad_y_, result_, residual_;
  std::vector<float> scale_, shift_, mean_, inv_std_;
  std::vector<float> statistics_[2];
};

}  // namespace thimble::bench
