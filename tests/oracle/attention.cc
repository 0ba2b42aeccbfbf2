// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include "disturbed.h"
#include "kernels/attention/reference.h"
#include "oracle.h"

namespace thimble::testing {
namespace {

struct AttentionEntry {
  using Def = ops::Attention;

  // What both of the definition's functions begin with. All texts have the same
  // sentences.
  struct Call {
    Call(const Def& def, const Batch& batch, int64_t features)
        : shape{.features = features,
                .heads = def.settings().heads,
                .causal = def.settings().causal},
          ends(batch.Ends()),
          sentences{static_cast<int64_t>(ends.size()), ends.data()},
          mask{.seed = kReferenceSeed,
               .step = kReferenceStep,
               .stream = def.settings().stream,
               .first = batch.first,
               .rate = def.settings().dropout} {}
    kernels::AttentionShape shape;
    std::vector<int32_t> ends;
    kernels::Sentences sentences;
    kernels::DropoutMask mask;
  };

  template <typename T>
  static void Forward(const Def& def, const ForwardPass<T>& pass) {
    const Call call(def, *pass.batch, pass.InShape(Def::kQ)[1]);
    kernels::reference::Attention(call.shape, call.sentences, call.sentences,
                                  call.mask, pass.In(Def::kQ), pass.In(Def::kK),
                                  pass.In(Def::kV), pass.out[0]);
  }

  static void Backward(const Def& def, BackwardPass& pass) {
    const ForwardPass<double>& forward = pass.forward;
    const Call call(def, *forward.batch, forward.InShape(Def::kQ)[1]);
    std::vector<Disturbed> in[3], made[3];
    for (uint32_t k : {Def::kQ, Def::kK, Def::kV}) {
      const size_t size = pass.grad_in[k]->size();
      in[k] = ToDisturbed(pass.In(k), size);
      made[k].resize(size);
    }
    const std::vector<Disturbed> grad_y =
        ToDisturbed(pass.grad_out[0], in[Def::kQ].size());
    const Disturbed::By by(pass.factors);
    kernels::reference::AttentionGrad(
        call.shape, call.sentences, call.sentences, call.mask,
        in[Def::kQ].data(), in[Def::kK].data(), in[Def::kV].data(),
        grad_y.data(), made[Def::kQ].data(), made[Def::kK].data(),
        made[Def::kV].data());
    for (uint32_t k : {Def::kQ, Def::kK, Def::kV}) Give(pass, k, made[k]);
  }

  static Sample Of(const std::string& what, const AttentionLayer& layer) {
    const auto add = [=](Network& net, ValueId x, const std::string& name) {
      // Two inputs of the same ends: backward needs both.
      const Text queries = net.TextInput(name + "queries");
      const Text keys = net.TextInput(name + "keys");
      const ValueId q = net.Linear(name + "q", x, 6);
      const ValueId k = net.Linear(name + "k", x, 6);
      const ValueId v = net.Linear(name + "v", x, 6);
      return net.Attention(name, q, k, v, queries, keys, layer);
    };
    return {what, On::kRows, add};
  }

  static std::vector<Sample> Samples() {
    // A text that looks at itself, and one of which the values are the keys.
    const auto self = [](Network& net, ValueId x, const std::string& name) {
      const Text text = net.TextInput(name + "text");
      return net.Attention(name, x, x, x, text, text, {.heads = 2});
    };
    const auto shared = [](Network& net, ValueId x, const std::string& name) {
      const Text text = net.TextInput(name + "text");
      const ValueId q = net.Linear(name + "q", x, 4);
      const ValueId k = net.Linear(name + "k", x, 4);
      return net.Attention(name, q, k, k, text, text, {.dropout = 0.1});
    };
    return {Of("heads 2", {.heads = 2}),
            Of("heads 3, causal", {.heads = 3, .causal = true}),
            Of("dropout", {.heads = 2, .dropout = 0.25}),
            Of("causal, dropout", {.causal = true, .dropout = 0.1}),
            {"of one value", On::kRows, self},
            {"values that are keys", On::kRows, shared}};
  }
};

const Registration<AttentionEntry> kAttentionEntry;

}  // namespace
}  // namespace thimble::testing
