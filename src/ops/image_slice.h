// SPDX-License-Identifier: Apache-2.0
//
// image-slice: u8 images [N, C, H, W] -> f32 rows [N, count]: elements [begin,
// begin + count) of each image in the order of its bytes, normalised by
// y = x * scale[c] + shift[c]. A step of a network that reads images as
// sequences; only the step's values are made, never the whole image as f32. No
// gradient: images are not learned.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"

namespace thimble::ops {

class ImageSlice final : public OpDef {
 public:
  ImageSlice(int64_t begin, int64_t count, std::vector<float> scale,
             std::vector<float> shift)
      : begin_(begin),
        count_(count),
        scale_(std::move(scale)),
        shift_(std::move(shift)) {}

  std::string_view name() const override { return "image-slice"; }
  std::string Attributes() const override {
    return ListAttributes("begin", begin_, "count", count_, "scale", scale_,
                          "shift", shift_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  int64_t Flops(std::span<const ValueSpec>,
                std::span<const ValueSpec> outputs) const override {
    return 2 * outputs[0].shape.elements();
  }

  int64_t begin() const { return begin_; }
  int64_t count() const { return count_; }
  // One per channel.
  const std::vector<float>& scale() const { return scale_; }
  const std::vector<float>& shift() const { return shift_; }

 private:
  int64_t begin_;
  int64_t count_;
  std::vector<float> scale_;
  std::vector<float> shift_;
};

}  // namespace thimble::ops
