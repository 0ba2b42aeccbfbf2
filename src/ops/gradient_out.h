// SPDX-License-Identifier: Apache-2.0
//
// Where an op puts the gradient of a weight: the target of its kernel, whether
// the gradient is stored as floats, in blocks, or folded into the optimizer's
// state (kernels/grad_sink). Belongs to one run of an op, and must outlive the
// call of its kernel.
#pragma once

#include <cstdint>

#include "kernels/conv/conv.h"
#include "kernels/embedding/embedding.h"
#include "kernels/grad_sink/grad_sink.h"
#include "kernels/matmul/matmul.h"
#include "ops/bound_op.h"

namespace thimble::ops {

// Whether the gradient is handed over in pieces, for which kernels need other
// scratch.
inline bool InPieces(const ValueSpec& gradient) {
  return gradient.storage.blocks.has_value();
}

inline Workspace GradWeightWorkspace(const kernels::Conv2dShape& shape,
                                     const ValueSpec& gradient) {
  return InPieces(gradient) ? kernels::Conv2dGradPiecesWorkspace(shape)
                            : kernels::Conv2dGradWeightWorkspace(shape);
}
inline Workspace GradWeightWorkspace(const kernels::LinearShape& shape,
                                     const kernels::LinearStorage& storage,
                                     const ValueSpec& gradient) {
  return InPieces(gradient)
             ? kernels::LinearGradPiecesWorkspace(shape, storage)
             : kernels::LinearGradWeightWorkspace(shape, storage);
}

// What a gradient's random numbers are a function of: what is added at
// different images of a step must be rounded by different ones. REQUIRES:
// fewer than 2^32 steps and images.
inline kernels::RandomAddress GradientRandom(const RunContext& run,
                                             int64_t image, uint32_t stream) {
  return {run.seed, run.step + (static_cast<uint64_t>(image) << 32), stream};
}

class GradientOut final : public kernels::PieceSink {
 public:
  // Of output `i`. `addend` is what the op's own inputs say that it is added
  // to; what earlier microbatches gave is found here. An op that calls its
  // kernel for one group of images after the other names the group.
  struct Group {
    int64_t index = 0;
    int64_t first = 0;  // image
  };
  GradientOut(const BoundOp& c, size_t i, const RunContext& run,
              kernels::ConstTensor addend, const Group& group)
      : out_(c.outputs[i]), call_(group.index), addend_(addend) {
    if (out_.fold != nullptr) return;
    if (group.index > 0 || c.Adds(i, run)) addend_ = c.Out(i).values();
    const int64_t image = run.PartOf(kBatchAxis).first + group.first;
    random_ = GradientRandom(run, image, out_.stream);
  }
  GradientOut(const BoundOp& c, size_t i, const RunContext& run)
      : GradientOut(c, i, run, kernels::ConstTensor::None(), {}) {}

  kernels::LinearTarget ForLinear() const {
    if (TakesPieces()) {
      return {.to = kernels::Tensor::None(),
              .pieces = this,
              .pattern = out_.pattern};
    }
    return {.to = out_.tensor().values(),
            .addend = addend_,
            .pattern = out_.pattern};
  }
  kernels::Conv2dGradWeightTarget ForConv() const {
    if (TakesPieces()) {
      return {.to = kernels::Tensor::None(),
              .pieces = this,
              .pattern = out_.pattern};
    }
    return {.to = out_.tensor().values(),
            .accumulate = addend_.is_there(),
            .pattern = out_.pattern};
  }

  kernels::EmbeddingTarget ForEmbedding() const {
    if (TakesPieces()) {
      return {.to = kernels::Tensor::None(),
              .pieces = this,
              .pattern = out_.pattern};
    }
    return {.to = out_.tensor().values(),
            .accumulate = addend_.is_there(),
            .pattern = out_.pattern};
  }

  void Take(int64_t first, int64_t n, float* sums) const override {
    if (out_.fold != nullptr) {
      out_.fold->Fold(call_, first, n, sums);
    } else {
      kernels::StoredSink(out_.tensor().values(), addend_, random_)
          .Take(first, n, sums);
    }
  }

 private:
  bool TakesPieces() const {
    return out_.fold != nullptr || InPieces(*out_.spec);
  }

  const BoundValue& out_;
  int64_t call_;
  kernels::ConstTensor addend_;
  kernels::RandomAddress random_;
};

}  // namespace thimble::ops
