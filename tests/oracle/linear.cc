// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include "kernels/matmul/reference.h"
#include "oracle.h"

namespace thimble::testing {
namespace {

struct LinearEntry {
  using Def = ops::Linear;

  template <typename T>
  static void Forward(const Def&, const ForwardPass<T>& pass) {
    kernels::reference::LinearForward(ops::LinearShapeOf(pass.InSpec(Def::kW)),
                                      pass.rows(), pass.In(Def::kX),
                                      pass.In(Def::kW), pass.out[0]);
  }

  static void Backward(const Def&, BackwardPass& pass) {
    namespace ref = kernels::reference;
    const kernels::LinearShape shape =
        ops::LinearShapeOf(pass.forward.InSpec(Def::kW));
    const double* grad_y = pass.grad_out[0];
    pass.Give(Def::kW, [&](double* grad_w) {
      ref::LinearGradWeight(shape, pass.rows(), pass.In(Def::kX), grad_y,
                            grad_w);
    });
    pass.Give(Def::kX, [&](double* grad_x) {
      ref::LinearGradInput(shape, pass.rows(), grad_y, pass.In(Def::kW),
                           grad_x);
    });
  }

  static std::vector<Sample> Samples() {
    std::vector<Sample> samples;
    for (const int64_t features : {1, 4, 7}) {
      samples.push_back(
          {"features " + std::to_string(features), On::kRows,
           [features](Network& net, ValueId x, const std::string& name) {
             return net.Linear(name, x, features, /*bias=*/false);
           }});
    }
    return samples;
  }
};

const Registration<LinearEntry> kLinearEntry;

}  // namespace
}  // namespace thimble::testing
