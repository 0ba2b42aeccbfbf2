// SPDX-License-Identifier: Apache-2.0
#include "ops/softmax_cross_entropy.h"

#include "kernels/softmax/reference.h"
#include "oracle.h"

namespace thimble::testing {
namespace {

struct SoftmaxCrossEntropyEntry {
  using Def = ops::SoftmaxCrossEntropy;

  template <typename T>
  static void Forward(const Def&, const ForwardPass<T>& pass) {
    int32_t correct = 0;
    kernels::reference::SoftmaxCrossEntropy(
        pass.rows(), pass.InShape(Def::kLogits)[1], pass.In(Def::kLogits),
        pass.batch->labels.data(), pass.out[0], &correct);
  }

  static void Backward(const Def&, BackwardPass& pass) {
    pass.Give(Def::kLogits, [&](double* grad_logits) {
      kernels::reference::SoftmaxCrossEntropyGrad(
          pass.rows(), pass.forward.InShape(Def::kLogits)[1],
          pass.In(Def::kLogits), pass.forward.batch->labels.data(),
          1.0 / static_cast<double>(pass.rows()), grad_logits);
    });
  }

  // Every network ends with it.
  static std::vector<Sample> Samples() { return {}; }
};

const Registration<SoftmaxCrossEntropyEntry> kSoftmaxCrossEntropyEntry;

}  // namespace
}  // namespace thimble::testing
