// SPDX-License-Identifier: Apache-2.0
#include "ops/conv2d.h"

#include "kernels/conv/reference.h"
#include "oracle.h"

namespace thimble::testing {
namespace {

struct Conv2dEntry {
  using Def = ops::Conv2d;

  template <typename T>
  static kernels::Conv2dShape ShapeOf(const Def& def,
                                      const ForwardPass<T>& pass) {
    return def.ShapeOf(pass.InSpec(Def::kX), pass.InSpec(Def::kW));
  }

  template <typename T>
  static void Forward(const Def& def, const ForwardPass<T>& pass) {
    kernels::reference::Conv2dForward(ShapeOf(def, pass), pass.rows(),
                                      pass.In(Def::kX), pass.In(Def::kW),
                                      pass.out[0]);
  }

  static void Backward(const Def& def, BackwardPass& pass) {
    namespace ref = kernels::reference;
    const kernels::Conv2dShape shape = ShapeOf(def, pass.forward);
    const double* grad_y = pass.grad_out[0];
    pass.Give(Def::kW, [&](double* grad_w) {
      ref::Conv2dGradWeight(shape, pass.rows(), pass.In(Def::kX), grad_y,
                            grad_w);
    });
    pass.Give(Def::kX, [&](double* grad_x) {
      ref::Conv2dGradInput(shape, pass.rows(), grad_y, pass.In(Def::kW),
                           grad_x);
    });
  }

  static std::vector<Sample> Samples() {
    std::vector<Sample> samples;
    for (const ConvLayer& layer :
         {ConvLayer{.channels = 4, .kernel = 1, .stride = 1, .padding = 0},
          ConvLayer{.channels = 2, .kernel = 1, .stride = 2, .padding = 0},
          ConvLayer{.channels = 4, .kernel = 3, .stride = 1, .padding = 1},
          ConvLayer{.channels = 5, .kernel = 3, .stride = 2, .padding = 1},
          ConvLayer{.channels = 2, .kernel = 3, .stride = 1, .padding = 0},
          ConvLayer{.channels = 2, .kernel = 3, .stride = 3, .padding = 2},
          ConvLayer{.channels = 2, .kernel = 2, .stride = 1, .padding = 1},
          ConvLayer{.channels = 3, .kernel = 5, .stride = 2, .padding = 2},
          ConvLayer{.channels = 9, .kernel = 5, .stride = 1, .padding = 0}}) {
      samples.push_back(
          {"channels " + std::to_string(layer.channels) + ", kernel " +
               std::to_string(layer.kernel) + ", stride " +
               std::to_string(layer.stride) + ", padding " +
               std::to_string(layer.padding),
           On::kImages,
           [layer](Network& net, ValueId x, const std::string& name) {
             return net.Conv2d(name, x, layer);
           }});
    }
    return samples;
  }
};

const Registration<Conv2dEntry> kConv2dEntry;

}  // namespace
}  // namespace thimble::testing
