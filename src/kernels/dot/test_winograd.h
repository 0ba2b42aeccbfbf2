// SPDX-License-Identifier: Apache-2.0
//
// Test only: shapes and operands with which Winograd's convolution with dot
// products is tested.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/conv/conv.h"
#include "kernels/dot/reference.h"
#include "kernels/dot/winograd_model.h"
#include "kernels/dot/winograd_pass.h"
#include "kernels/stored_tensor.h"

namespace thimble::kernels::testing {

inline Conv2dShape ThreeByThree(int64_t in, int64_t height, int64_t width,
                                int64_t out) {
  return {.in_channels = in,
          .in_height = height,
          .in_width = width,
          .out_channels = out,
          .kernel_h = 3,
          .kernel_w = 3,
          .stride = 1,
          .padding = 1};
}

struct WinogradCase {
  Conv2dShape shape;
  int64_t images;
};
struct WinogradOperands {
  explicit WinogradOperands(const WinogradCase& c)
      : x(DType::kBF16,
          static_cast<size_t>(c.images * c.shape.in_channels *
                              c.shape.in_height * c.shape.in_width),
          1),
        w(DType::kBF16,
          static_cast<size_t>(c.shape.out_channels * c.shape.in_channels * 9),
          2),
        y(DType::kBF16,
          static_cast<size_t>(c.images * c.shape.out_channels *
                              c.shape.in_height * c.shape.in_width),
          3),
        scale(Randoms(c.shape.in_channels, 4, 0.5f, 1.5f)),
        shift(Randoms(c.shape.in_channels, 5, -0.5f, 0.5f)) {}
  // Forward, or x as what relu(x * scale + shift) is computed of.
  Conv2dInput Input(int prologue) {
    Conv2dInput input{.x = x.tensor()};
    if (prologue == 0) return input;
    input.scale = scale.data();
    input.shift = shift.data();
    input.relu = prologue == 2;
    return input;
  }
  StoredTensor x, w, y;
  std::vector<float> scale, shift;
};

inline void ExpectBits(StoredTensor& got, const std::vector<float>& want,
                       const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(dot::BitsAt(got.tensor(), static_cast<int64_t>(i)),
              dot::Bf16Of(want[i]))
        << what << ", element " << i;
  }
}

inline dot::WinogradPass PassOf(const Conv2dShape& s, bool forward) {
  dot::WinogradPass pass;
  const Workspace workspace =
      forward ? Conv2dForwardWorkspace(s) : Conv2dGradInputWorkspace(s);
  EXPECT_TRUE(dot::MakeWinogradPass(s, forward, workspace.per_thread, pass));
  return pass;
}

}  // namespace thimble::kernels::testing
