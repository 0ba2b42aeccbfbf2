// SPDX-License-Identifier: Apache-2.0
#include "ops/shortcut.h"

#include "kernels/shortcut/reference.h"
#include "oracle.h"

namespace thimble::testing {
namespace {

struct ShortcutEntry {
  using Def = ops::Shortcut;

  template <typename T>
  static void Forward(const Def& def, const ForwardPass<T>& pass) {
    kernels::reference::Shortcut(def.ShapeOf(pass.InSpec(0)), pass.rows(),
                                 pass.In(0), pass.out[0]);
  }

  static void Backward(const Def& def, BackwardPass& pass) {
    const auto shape = def.ShapeOf(pass.forward.InSpec(0));
    pass.Give(0, [&](double* grad_x) {
      kernels::reference::ShortcutGrad(shape, pass.rows(), pass.grad_out[0],
                                       grad_x);
    });
  }

  static std::vector<Sample> Samples() {
    std::vector<Sample> samples;
    for (const int64_t stride : {1, 2, 3}) {
      for (const int64_t channels : {2, 3, 5}) {
        samples.push_back(
            {"channels " + std::to_string(channels) + ", stride " +
                 std::to_string(stride),
             On::kImages,
             [channels, stride](Network& net, ValueId x, const std::string&) {
               return net.Shortcut(x, channels, stride);
             }});
      }
    }
    return samples;
  }
};

const Registration<ShortcutEntry> kShortcutEntry;

}  // namespace
}  // namespace thimble::testing
