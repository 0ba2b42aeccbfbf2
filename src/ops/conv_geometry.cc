// SPDX-License-Identifier: Apache-2.0
#include "ops/conv_geometry.h"

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

Result<std::vector<ValueSpec>> ConvGeometry::Infer(ValueSpec x,
                                                   const ValueSpec& w) const {
  x.dtype = DType::kF32;
  const ValueSpec inputs[] = {x, w};
  return Conv2d(stride, padding).Infer(inputs);
}

}  // namespace thimble::ops
