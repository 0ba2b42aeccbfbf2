// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.h"

#include "kernels/embedding/reference.h"
#include "kernels/sentences.h"
#include "oracle.h"

namespace thimble::testing {
namespace {

struct EmbeddingEntry {
  using Def = ops::Embedding;

  template <typename T>
  static kernels::EmbeddingShape ShapeOf(const ForwardPass<T>& pass) {
    const Shape& w = pass.InShape(Def::kW);
    return {.vocabulary = w[0], .features = w[1]};
  }

  template <typename T>
  static void Forward(const Def& def, const ForwardPass<T>& pass) {
    const std::vector<int32_t> ends = pass.batch->Ends();
    const kernels::Sentences sentences = {static_cast<int64_t>(ends.size()),
                                          ends.data()};
    kernels::reference::Embedding(
        ShapeOf(pass), pass.rows(), static_cast<double>(def.scale()),
        pass.batch->tokens.data(), pass.In(Def::kW),
        def.with_positions() ? &sentences : nullptr, pass.out[0]);
  }

  static void Backward(const Def& def, BackwardPass& pass) {
    pass.Give(Def::kW, [&](double* grad_w) {
      kernels::reference::EmbeddingGrad(
          ShapeOf(pass.forward), pass.rows(), static_cast<double>(def.scale()),
          pass.forward.batch->tokens.data(), pass.grad_out[0], grad_w);
    });
  }

  // Alone, and added to rows of other values.
  static std::vector<Sample> Samples() {
    std::vector<Sample> samples;
    for (const bool positions : {true, false}) {
      const std::string what = positions ? "with positions" : "by tokens alone";
      for (const int64_t features : {4, 18}) {
        samples.push_back(
            {what + ", features " + std::to_string(features), On::kNothing,
             [=](Network& net, ValueId, const std::string& name) {
               return net.Embedding(name, net.TextInput("text"),
                                    Batch::kVocabulary, features, positions);
             }});
      }
      samples.push_back({what + ", added", On::kRows,
                         [=](Network& net, ValueId x, const std::string& name) {
                           return net.Add(
                               x, net.Embedding(name, net.TextInput("text"),
                                                Batch::kVocabulary, 10,
                                                positions));
                         }});
    }
    return samples;
  }
};

const Registration<EmbeddingEntry> kEmbeddingEntry;

}  // namespace
}  // namespace thimble::testing
