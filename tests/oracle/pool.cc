// SPDX-License-Identifier: Apache-2.0
#include "ops/pool.h"

#include "kernels/pool/reference.h"
#include "oracle.h"

namespace thimble::testing {
namespace {

// With overlap and padding. `pool` is a method of Network.
std::vector<Sample> SamplesOf(ValueId (Network::*pool)(ValueId,
                                                       const PoolLayer&)) {
  std::vector<Sample> samples;
  for (const PoolLayer& layer :
       {PoolLayer{.kernel = 2, .stride = 2, .padding = 0},
        PoolLayer{.kernel = 3, .stride = 1, .padding = 1},
        PoolLayer{.kernel = 3, .stride = 2, .padding = 1},
        PoolLayer{.kernel = 3, .stride = 2, .padding = 0},
        PoolLayer{.kernel = 2, .stride = 1, .padding = 1},
        PoolLayer{.kernel = 2, .stride = 3, .padding = 0},
        PoolLayer{.kernel = 5, .stride = 4, .padding = 2}}) {
    samples.push_back(
        {"kernel " + std::to_string(layer.kernel) + ", stride " +
             std::to_string(layer.stride) + ", padding " +
             std::to_string(layer.padding),
         On::kImages,
         [layer, pool](Network& net, ValueId x, const std::string&) {
           return (net.*pool)(x, layer);
         }});
  }
  return samples;
}

struct MaxPoolEntry {
  using Def = ops::MaxPool;

  template <typename T>
  static void Forward(const Def& def, const ForwardPass<T>& pass) {
    const T* x = pass.In(0);
    T* y = pass.out[0];
    int64_t started = -1;
    kernels::reference::ForEachWindow(
        ops::PoolShapeOf(pass.InSpec(0), def.window()), pass.rows(),
        [&](int64_t out, int64_t in, int64_t) {
          if (out == started) {
            // The largest two meet here, in whatever order they come.
            const double lead = std::real(x[in]) - std::real(y[out]);
            pass.NoteKink(std::abs(lead));
            if (!(lead > 0)) return;
          }
          started = out;
          y[out] = x[in];
        });
  }

  static void Backward(const Def& def, BackwardPass& pass) {
    namespace ref = kernels::reference;
    const auto shape = ops::PoolShapeOf(pass.forward.InSpec(0), def.window());
    std::vector<double> y(static_cast<size_t>(pass.forward.OutElements(0)));
    std::vector<uint8_t> winner(y.size());
    ref::MaxPool(shape, pass.rows(), pass.In(0), y.data(), winner.data());
    pass.Give(0, [&](double* grad_x) {
      ref::MaxPoolGrad(shape, pass.rows(), winner.data(), pass.grad_out[0],
                       grad_x);
    });
  }

  static std::vector<Sample> Samples() { return SamplesOf(&Network::MaxPool); }
};

struct AveragePoolEntry {
  using Def = ops::AveragePool;

  template <typename T>
  static void Forward(const Def& def, const ForwardPass<T>& pass) {
    kernels::reference::AveragePool(
        ops::PoolShapeOf(pass.InSpec(0), def.window()), pass.rows(), pass.In(0),
        pass.out[0]);
  }

  static void Backward(const Def& def, BackwardPass& pass) {
    const auto shape = ops::PoolShapeOf(pass.forward.InSpec(0), def.window());
    pass.Give(0, [&](double* grad_x) {
      kernels::reference::AveragePoolGrad(shape, pass.rows(), pass.grad_out[0],
                                          grad_x);
    });
  }

  static std::vector<Sample> Samples() {
    return SamplesOf(&Network::AveragePool);
  }
};

struct GlobalAveragePoolEntry {
  using Def = ops::GlobalAveragePool;

  template <typename T>
  static void Forward(const Def&, const ForwardPass<T>& pass) {
    const Shape& shape = pass.InShape(0);
    kernels::reference::GlobalAveragePool(
        pass.rows(), shape[1], shape.elements_from(2), pass.In(0), pass.out[0]);
  }

  static void Backward(const Def&, BackwardPass& pass) {
    const Shape& shape = pass.forward.InShape(0);
    pass.Give(0, [&](double* grad_x) {
      kernels::reference::GlobalAveragePoolGrad(pass.rows(), shape[1],
                                                shape.elements_from(2),
                                                pass.grad_out[0], grad_x);
    });
  }

  static std::vector<Sample> Samples() {
    return {{"of images", On::kImages,
             [](Network& net, ValueId x, const std::string&) {
               return net.GlobalAveragePool(x);
             }}};
  }
};

const Registration<MaxPoolEntry> kMaxPoolEntry;
const Registration<AveragePoolEntry> kAveragePoolEntry;
const Registration<GlobalAveragePoolEntry> kGlobalAveragePoolEntry;

}  // namespace
}  // namespace thimble::testing
