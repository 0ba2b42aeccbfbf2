// SPDX-License-Identifier: Apache-2.0
#include "ops/projected_loss.h"

#include "kernels/matmul/reference.h"
#include "kernels/softmax/reference.h"
#include "oracle.h"

namespace thimble::testing {
namespace {

struct ProjectedCrossEntropyEntry {
  using Def = ops::ProjectedCrossEntropy;

  template <typename T>
  static kernels::LinearShape ShapeOf(const ForwardPass<T>& pass) {
    return {.in = pass.InShape(Def::kW)[1], .out = pass.InShape(Def::kW)[0]};
  }

  template <typename T>
  static std::vector<T> Logits(const ForwardPass<T>& pass) {
    const kernels::LinearShape shape = ShapeOf(pass);
    std::vector<T> logits(static_cast<size_t>(pass.rows() * shape.out));
    kernels::reference::LinearForward(shape, pass.rows(), pass.In(Def::kX),
                                      pass.In(Def::kW), logits.data());
    return logits;
  }

  template <typename T>
  static void Forward(const Def& def, const ForwardPass<T>& pass) {
    const int64_t classes = ShapeOf(pass).out;
    const std::vector<T> logits = Logits(pass);
    std::vector<T> loss(static_cast<size_t>(pass.rows()));
    std::vector<T> nll(loss.size());
    const std::vector<int32_t>& labels = pass.batch->labels;
    kernels::reference::TokenLoss(
        pass.rows(), classes, logits.data(), labels.data(),
        static_cast<double>(def.smoothing()), loss.data(), nll.data());
    *pass.out[0] = *pass.out[1] = *pass.out[2] = T(0);
    for (size_t r = 0; r < loss.size(); ++r) {
      *pass.out[0] += loss[r] / T(static_cast<double>(pass.rows()));
      *pass.out[1] += nll[r];
      const T* row = logits.data() + static_cast<int64_t>(r) * classes;
      const bool hit =
          kernels::reference::FirstLargest(classes, row) == labels[r];
      *pass.out[2] += T(hit ? 1 : 0);
    }
  }

  static void Backward(const Def& def, BackwardPass& pass) {
    const kernels::LinearShape shape = ShapeOf(pass.forward);
    const std::vector<double> logits = Logits(pass.forward);
    std::vector<double> grad(logits.size());
    kernels::reference::TokenLossGrad(
        pass.rows(), shape.out, logits.data(),
        pass.forward.batch->labels.data(), static_cast<double>(def.smoothing()),
        1.0 / static_cast<double>(pass.rows()), grad.data());
    for (double& g : grad) g *= pass.factors.Next();
    pass.Give(Def::kX, [&](double* grad_x) {
      kernels::reference::LinearGradInput(shape, pass.rows(), grad.data(),
                                          pass.In(Def::kW), grad_x);
    });
    pass.Give(Def::kW, [&](double* grad_w) {
      kernels::reference::LinearGradWeight(shape, pass.rows(), pass.In(Def::kX),
                                           grad.data(), grad_w);
    });
  }

  // Networks end with it where a sample is passed on (sample_nets.h).
  static std::vector<Sample> Samples() { return {}; }
};

const Registration<ProjectedCrossEntropyEntry> kProjectedCrossEntropyEntry;

}  // namespace
}  // namespace thimble::testing
