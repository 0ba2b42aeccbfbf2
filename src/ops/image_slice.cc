// SPDX-License-Identifier: Apache-2.0
#include "ops/image_slice.h"

#include <fmt/format.h>

#include "kernels/elementwise/elementwise.h"
#include "ops/bound_op.h"
#include "ops/normalize.h"

namespace thimble::ops {

Result<std::vector<ValueSpec>> ImageSlice::Infer(
    std::span<const ValueSpec> inputs) const {
  // Images, and a scale and a shift for each channel, as for the whole of them.
  auto whole = Normalize(scale_, shift_).Infer(inputs);
  if (!whole.ok()) return whole.status();
  const Shape& shape = inputs[0].shape;
  if (begin_ < 0 || count_ < 1 || begin_ > shape.elements_from(1) - count_) {
    return Status::Usage(
        fmt::format("elements {} to {} are not within images {} of {}", begin_,
                    begin_ + count_, shape.ToString(), shape.elements_from(1)));
  }
  return std::vector<ValueSpec>{
      {{shape[0], count_}, DType::kF32, inputs[0].axis}};
}

void ImageSlice::Run(const BoundOp& c, const RunContext& run) const {
  const ValueSpec& x = c.in_spec(0);
  kernels::NormalizeU8Slice(run.Rows(x), x.shape[1], x.shape.elements_from(2),
                            begin(), count(), c.In(0).u8(), scale().data(),
                            shift().data(), c.Out(0), c.kernel);
}

}  // namespace thimble::ops
