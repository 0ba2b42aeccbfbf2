// SPDX-License-Identifier: Apache-2.0
#include "ops/dynamic_conv.h"

#include "disturbed.h"
#include "kernels/dynamic_conv/reference.h"
#include "oracle.h"

namespace thimble::testing {
namespace {

struct DynamicConvEntry {
  using Def = ops::DynamicConv;

  // What all of the definition's functions begin with.
  struct Call {
    Call(const Def& def, const Batch& batch, int64_t features)
        : shape{.features = features,
                .heads = def.settings().heads,
                .kernel = def.settings().kernel,
                .causal = def.settings().causal},
          ends(batch.Ends()),
          sentences{static_cast<int64_t>(ends.size()), ends.data()},
          mask{.seed = kReferenceSeed,
               .step = kReferenceStep,
               .stream = def.settings().stream,
               .first = batch.first,
               .rate = def.settings().dropout} {}
    kernels::DynamicConvShape shape;
    std::vector<int32_t> ends;
    kernels::Sentences sentences;
    kernels::DropoutMask mask;
  };

  template <typename T>
  static void Forward(const Def& def, const ForwardPass<T>& pass) {
    const Call call(def, *pass.batch, pass.InShape(Def::kU)[1]);
    kernels::reference::DynamicConv(call.shape, call.sentences, call.mask,
                                    pass.In(Def::kU), pass.In(Def::kLogits),
                                    pass.out[0]);
  }

  static void Backward(const Def& def, BackwardPass& pass) {
    const ForwardPass<double>& forward = pass.forward;
    const Call call(def, *forward.batch, forward.InShape(Def::kU)[1]);
    std::vector<Disturbed> in[2], made[2];
    for (uint32_t k : {Def::kU, Def::kLogits}) {
      const size_t size = pass.grad_in[k]->size();
      in[k] = ToDisturbed(pass.In(k), size);
      made[k].resize(size);
    }
    const std::vector<Disturbed> grad_y =
        ToDisturbed(pass.grad_out[0], in[Def::kU].size());
    const Disturbed::By by(pass.factors);
    kernels::reference::DynamicConvGradLogits(
        call.shape, call.sentences, call.mask, in[Def::kU].data(),
        in[Def::kLogits].data(), grad_y.data(), made[Def::kLogits].data());
    kernels::reference::DynamicConvGradInput(
        call.shape, call.sentences, call.mask, in[Def::kLogits].data(),
        grad_y.data(), made[Def::kU].data());
    for (uint32_t k : {Def::kLogits, Def::kU}) Give(pass, k, made[k]);
  }

  static Sample Of(const DynamicConvLayer& layer, bool takes_learned) {
    const auto add = [=](Network& net, ValueId x, const std::string& name) {
      const Text text = net.TextInput(name + "text");
      const ValueId u = takes_learned ? net.Linear(name + "u", x, 6) : x;
      const ValueId taps =
          net.Linear(name + "taps", u, layer.heads * layer.kernel, false);
      return net.DynamicConv(name, u, taps, text, layer);
    };
    std::string what = "heads " + std::to_string(layer.heads) + ", kernel " +
                       std::to_string(layer.kernel);
    if (layer.causal) what += ", causal";
    if (layer.dropout > 0) what += ", dropout";
    return {what, On::kRows, add};
  }

  static std::vector<Sample> Samples() {
    return {Of({.heads = 2, .kernel = 3}, true),
            Of({.heads = 1, .kernel = 5, .dropout = 0.25}, false),
            Of({.heads = 3, .kernel = 4, .causal = true, .dropout = 0.1}, true),
            Of({.heads = 2, .kernel = 1}, true)};
  }
};

const Registration<DynamicConvEntry> kDynamicConvEntry;

}  // namespace
}  // namespace thimble::testing
