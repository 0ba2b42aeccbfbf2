// SPDX-License-Identifier: Apache-2.0
#include "ops/conv_geometry.h"

#include <fmt/format.h>

#include "ops/conv2d.h"

namespace thimble::ops {

kernels::Conv2dShape ConvGeometry::ShapeOf(const ValueSpec& x,
                                           const ValueSpec& w) const {
  return Conv2d(stride, padding).ShapeOf(x, w);
}

int64_t ConvGeometry::Flops(const ValueSpec& x, const ValueSpec& w) const {
  const ValueSpec inputs[] = {x, w};
  return Conv2d(stride, padding).Flops(inputs, {});
}

Result<std::vector<ValueSpec>> ConvGeometry::Infer(const ValueSpec& x,
                                                   const ValueSpec& w) const {
  if (x.shape.rank() != 4 || w.shape.rank() != 4 || x.shape[1] != w.shape[1]) {
    return Status::Usage(fmt::format(
        "needs images [N, C, H, W] and weights [O, C, KH, KW] of the same C, "
        "got {} and {}",
        x.shape.ToString(), w.shape.ToString()));
  }
  // The upper limit keeps the sums of extents below from overflowing.
  if (stride < 1 || padding < 0 || padding > (int64_t{1} << 32)) {
    return Status::Usage(fmt::format(
        "needs stride >= 1 and padding >= 0, got stride {} and padding {}",
        stride, padding));
  }
  const kernels::Conv2dShape s = ShapeOf(x, w);
  if (s.kernel_h < 1 || s.kernel_w < 1 ||
      s.in_height + 2 * padding < s.kernel_h ||
      s.in_width + 2 * padding < s.kernel_w) {
    return Status::Usage(
        fmt::format("kernel {} does not fit images {} with padding {}",
                    w.shape.ToString(), x.shape.ToString(), padding));
  }
  return std::vector<ValueSpec>{
      {{x.shape[0], s.out_channels, s.out_height(), s.out_width()},
       DType::kF32,
       x.axis}};
}

}  // namespace thimble::ops
