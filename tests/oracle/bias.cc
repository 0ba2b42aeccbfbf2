// SPDX-License-Identifier: Apache-2.0
#include "ops/bias.h"

#include "kernels/elementwise/reference.h"
#include "oracle.h"

namespace thimble::testing {
namespace {

struct BiasEntry {
  using Def = ops::Bias;

  template <typename T>
  static void Forward(const Def&, const ForwardPass<T>& pass) {
    const Shape& shape = pass.InShape(Def::kX);
    kernels::reference::BiasAdd(pass.rows(), shape[1], shape.elements_from(2),
                                pass.In(Def::kX), pass.In(Def::kBias),
                                pass.out[0]);
  }

  static void Backward(const Def&, BackwardPass& pass) {
    const Shape& shape = pass.forward.InShape(Def::kX);
    pass.Give(Def::kBias, [&](double* grad_bias) {
      kernels::reference::BiasGrad(pass.rows(), shape[1],
                                   shape.elements_from(2), pass.grad_out[0],
                                   grad_bias);
    });
    pass.PassOn(Def::kX);
  }

  static std::vector<Sample> Samples() {
    const auto add = [](Network& net, ValueId x, const std::string& name) {
      return net.Bias(name, x);
    };
    return {{"on images", On::kImages, add}, {"on rows", On::kRows, add}};
  }
};

const Registration<BiasEntry> kBiasEntry;

}  // namespace
}  // namespace thimble::testing
