// SPDX-License-Identifier: Apache-2.0
#include "ops/dropout.h"

#include "kernels/elementwise/reference.h"
#include "oracle.h"

namespace thimble::testing {
namespace {

struct DropoutEntry {
  using Def = ops::Dropout;

  static kernels::DropoutMask MaskOf(const Def& def, const Batch& batch) {
    return {.seed = kReferenceSeed,
            .step = kReferenceStep,
            .stream = def.stream(),
            .first = batch.first,
            .rate = def.rate()};
  }

  template <typename T>
  static void Forward(const Def& def, const ForwardPass<T>& pass) {
    kernels::reference::Dropout(pass.rows(), pass.InShape(0).elements_from(1),
                                MaskOf(def, *pass.batch), pass.In(0),
                                pass.out[0]);
  }

  static void Backward(const Def& def, BackwardPass& pass) {
    pass.Give(0, [&](double* grad_x) {
      kernels::reference::Dropout(
          pass.rows(), pass.forward.InShape(0).elements_from(1),
          MaskOf(def, *pass.forward.batch), pass.grad_out[0], grad_x);
    });
  }

  static std::vector<Sample> Samples() {
    std::vector<Sample> samples;
    for (const double rate : {0.25, 0.5}) {
      const auto add = [rate](Network& net, ValueId x, const std::string&) {
        return net.Dropout(x, rate);
      };
      const std::string what = "rate " + std::to_string(rate);
      samples.push_back({what + " of images", On::kImages, add});
      samples.push_back({what + " of rows", On::kRows, add});
    }
    return samples;
  }
};

const Registration<DropoutEntry> kDropoutEntry;

}  // namespace
}  // namespace thimble::testing
