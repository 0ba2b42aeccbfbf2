// SPDX-License-Identifier: Apache-2.0
//
// Ops that read a network's images. They have no backward: images are not
// learned.
#include "kernels/elementwise/reference.h"
#include "ops/image_slice.h"
#include "ops/normalize.h"
#include "oracle.h"

namespace thimble::testing {
namespace {

struct NormalizeEntry {
  using Def = ops::Normalize;

  template <typename T>
  static void Forward(const Def& def, const ForwardPass<T>& pass) {
    const std::vector<T> scale(def.scale().begin(), def.scale().end());
    const std::vector<T> shift(def.shift().begin(), def.shift().end());
    const Shape& shape = pass.InShape(0);
    kernels::reference::NormalizeU8(
        pass.rows(), shape[1], shape.elements_from(2),
        pass.batch->images.data(), scale.data(), shift.data(), pass.out[0]);
  }

  static void Backward(const Def&, BackwardPass&) {}

  static std::vector<Sample> Samples() {
    const auto add = [](Network& net, ValueId, const std::string& name) {
      const ValueId x = net.Images({.channels = 3,
                                    .height = 5,
                                    .width = 4,
                                    .mean = {100, 120, 150},
                                    .stddev = {60, 70, 50}});
      return net.Conv2d(name, x, {.channels = 2});
    };
    const auto shared = [](Network& net, ValueId, const std::string& name) {
      const ValueId x = net.Images({.channels = 1, .height = 4, .width = 3});
      return net.Add(net.Conv2d(name + "a", x, {}),
                     net.Conv2d(name + "b", x, {}));
    };
    return {{"for one convolution", On::kNothing, add},
            {"for two convolutions", On::kNothing, shared}};
  }
};

struct ImageSliceEntry {
  using Def = ops::ImageSlice;

  template <typename T>
  static void Forward(const Def& def, const ForwardPass<T>& pass) {
    const std::vector<T> scale(def.scale().begin(), def.scale().end());
    const std::vector<T> shift(def.shift().begin(), def.shift().end());
    const Shape& shape = pass.InShape(0);
    kernels::reference::NormalizeU8Slice(
        pass.rows(), shape[1], shape.elements_from(2), def.begin(), def.count(),
        pass.batch->images.data(), scale.data(), shift.data(), pass.out[0]);
  }

  static void Backward(const Def&, BackwardPass&) {}

  static std::vector<Sample> Samples() {
    std::vector<Sample> samples;
    // Of 2 x 6 x 5: a part of a row, or across channels.
    for (const int64_t steps : {3, 12}) {
      const auto add = [steps](Network& net, ValueId, const std::string& name) {
        net.ImageSequence({.channels = 2,
                           .height = 6,
                           .width = 5,
                           .mean = {120, 90},
                           .stddev = {60, 70}},
                          steps);
        return net.Add(
            net.Linear(name + "first", net.SequenceStep(0), 4),
            net.Linear(name + "last", net.SequenceStep(steps - 1), 4));
      };
      samples.push_back({"steps " + std::to_string(steps), On::kNothing, add});
    }
    return samples;
  }
};

const Registration<NormalizeEntry> kNormalizeEntry;
const Registration<ImageSliceEntry> kImageSliceEntry;

}  // namespace
}  // namespace thimble::testing
