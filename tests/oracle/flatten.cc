// SPDX-License-Identifier: Apache-2.0
#include "ops/reshape.h"
#include "oracle.h"

namespace thimble::testing {
namespace {

struct FlattenEntry {
  using Def = ops::Flatten;

  template <typename T>
  static void Forward(const Def&, const ForwardPass<T>& pass) {
    std::copy_n(pass.In(0), pass.OutElements(0), pass.out[0]);
  }

  static void Backward(const Def&, BackwardPass& pass) { pass.PassOn(0); }

  static std::vector<Sample> Samples() {
    return {{"of images", On::kImages,
             [](Network& net, ValueId x, const std::string&) {
               return net.Flatten(x);
             }}};
  }
};

const Registration<FlattenEntry> kFlattenEntry;

}  // namespace
}  // namespace thimble::testing
