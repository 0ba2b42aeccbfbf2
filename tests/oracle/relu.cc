// SPDX-License-Identifier: Apache-2.0
#include "ops/relu.h"

#include "kernels/elementwise/reference.h"
#include "oracle.h"

namespace thimble::testing {
namespace {

struct ReluEntry {
  using Def = ops::Relu;

  template <typename T>
  static void Forward(const Def&, const ForwardPass<T>& pass) {
    for (int64_t i = 0; i < pass.InElements(0); ++i) {
      const double real = std::real(pass.In(0)[i]);
      pass.out[0][i] = real > 0 ? pass.In(0)[i] : T(0);
      pass.NoteKink(std::abs(real));
    }
  }

  static void Backward(const Def&, BackwardPass& pass) {
    pass.Give(0, [&](double* grad_x) {
      kernels::reference::ReluGradFromOutput(
          pass.forward.OutElements(0), pass.Out(0), pass.grad_out[0], grad_x);
    });
  }

  static std::vector<Sample> Samples() {
    const auto add = [](Network& net, ValueId x, const std::string&) {
      return net.Relu(x);
    };
    return {{"of images", On::kImages, add}, {"of rows", On::kRows, add}};
  }
};

const Registration<ReluEntry> kReluEntry;

}  // namespace
}  // namespace thimble::testing
