// SPDX-License-Identifier: Apache-2.0
//
// The scalar backward pass beside ReferenceNet, in f64, from the oracle's
// entries. Not an oracle (complex steps are): it is what every
// value and every gradient can be disturbed in, to see how far f32 roundings
// carry in a backward pass. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "oracle/oracle.h"
#include "reference_net.h"

namespace thimble::testing {

class ReferenceBackward {
 public:
  // Keeps references to both. With epsilon > 0 every value and gradient that an
  // op makes is multiplied by a factor in 1 ± epsilon, another for each sample.
  ReferenceBackward(const Model& model, const Batch& batch, double epsilon,
                    uint64_t sample)
      : model_(model), forward_(model, batch), factors_(epsilon, sample) {
    if (epsilon > 0) forward_.RoundRandomly(epsilon, sample);
  }

  LossAndGradients Run(const Tensors& parameters) {
    forward_.Set(parameters);
    LossAndGradients result{forward_.Run(), {}};
    std::vector<std::vector<double>> gradients;  // by the model's value ids
    for (uint32_t i = 0; i < model_.graph.values().size(); ++i) {
      gradients.emplace_back(forward_.At({i}).size());
    }
    for (size_t k = model_.graph.ops().size(); k-- > 0;) {
      const Op& op = model_.graph.ops()[k];
      BackwardPass pass{forward_.PassOf(k), {}, {}, factors_};
      for (ValueId v : op.outputs) {
        pass.grad_out.push_back(gradients[v.i].data());
      }
      for (ValueId v : op.inputs) pass.grad_in.push_back(&gradients[v.i]);
      EntryOf(*op.def).Backward(pass);
    }
    for (ValueId id : ParametersOf(model_)) {
      result.gradients.push_back(gradients[id.i]);
    }
    return result;
  }

 private:
  const Model& model_;
  ReferenceNet<double> forward_;
  Factors factors_;
};

}  // namespace thimble::testing
