// SPDX-License-Identifier: Apache-2.0
//
// dropout: in training y = x / (1 − rate) for elements that are kept, 0 for the
// others, which are a share `rate` by chance; in evaluation y = x, and no op is
// left. f32 with a leading batch, in place. Backward reads nothing: its op is
// the same on the gradient, and draws the same mask again. A mask is a function
// of seed, step, the image's position in the step, `stream` and the element
// (kernels/elementwise/elementwise.h), so it is not stored and does not depend
// on how a step is divided or what is recomputed.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"

namespace thimble::ops {

class Dropout final : public OpDef {
 public:
  // `stream` tells the dropouts of a network apart.
  Dropout(double rate, uint32_t stream)
      : rate_(static_cast<float>(rate)), stream_(stream) {}

  float rate() const { return rate_; }
  uint32_t stream() const { return stream_; }

  std::string_view name() const override { return "dropout"; }
  std::string Attributes() const override {
    return ListAttributes("rate", rate_, "stream", int64_t{stream_});
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  ForwardResult Forward(ForwardContext& context) const override;
  void Gradient(GradientContext& context) const override;
  std::vector<InPlacePair> InPlace() const override { return {{0, 0}}; }

 private:
  float rate_;
  uint32_t stream_;
};

}  // namespace thimble::ops
