// SPDX-License-Identifier: Apache-2.0
#include "ops/add.h"

#include "kernels/elementwise/reference.h"
#include "oracle.h"

namespace thimble::testing {
namespace {

struct SumEntry {
  using Def = ops::Add;

  template <typename T>
  static void Forward(const Def&, const ForwardPass<T>& pass) {
    kernels::reference::Add(pass.OutElements(0), pass.In(0), pass.In(1),
                            pass.out[0]);
  }

  static void Backward(const Def&, BackwardPass& pass) {
    pass.PassOn(0);
    pass.PassOn(1);
  }

  static std::vector<Sample> Samples() {
    const auto twice = [](Network& net, ValueId x, const std::string&) {
      return net.Add(x, x);
    };
    const auto shared = [](Network& net, ValueId x, const std::string&) {
      const ValueId sum = net.Add(x, x);
      return net.Add(net.Add(sum, x), sum);
    };
    const auto branch = [](Network& net, ValueId x, const std::string& name) {
      const ValueId y = net.Conv2d(name, x, {.channels = 3});
      return net.Add(y, net.Conv2d(name + "b", x, {.channels = 3}));
    };
    // Where norms fuse with convolutions, the sum does too.
    const auto residual = [](Network& net, ValueId x, const std::string& name) {
      x = net.Conv2d(name + "a", x, {.channels = 2});
      const ValueId y = net.Relu(net.BatchNorm(name + "n", x, 1e-2f));
      return net.Add(x, net.Conv2d(name, y, {.channels = 2}));
    };
    const auto rows = [](Network& net, ValueId x, const std::string& name) {
      const ValueId a = net.Linear(name + "a", x, 3);
      const ValueId b = net.Linear(name + "b", x, 3, /*bias=*/false);
      return net.Add(net.Add(a, b), a);
    };
    const auto normal = [](const Shape& x) {
      return x[0] * x.elements_from(2) > 1;
    };
    return {{"x twice", On::kImages, twice},
            {"of shared values", On::kImages, shared},
            {"of two convolutions", On::kImages, branch},
            {"of a residual block", On::kImages, residual, normal},
            {"rows twice", On::kRows, twice},
            {"of two linear layers", On::kRows, rows}};
  }
};

const Registration<SumEntry> kSumEntry;

}  // namespace
}  // namespace thimble::testing
