// SPDX-License-Identifier: Apache-2.0
//
// ReferenceNet: a scalar interpreter of a model's mode-free graph in training
// mode (batch statistics), for any T: the definition that the planned, SIMD,
// threaded execution is compared with. It knows no plan and no backward pass;
// with std::complex<double> the derivative of the loss by one parameter is the
// imaginary part of the loss after an imaginary step (the complex step, exact
// to rounding). Kinks (ReLU, max pooling) select by the real part. What an op
// does comes from its entry in the oracle. One thread.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/check.h"
#include "graph/op.h"
#include "kernels/testing.h"
#include "oracle/oracle.h"
#include "thimble/graph.h"

namespace thimble::testing {

// One tensor per parameter, in the order of the model's values, which is also
// that of Plan::parameters().
using Tensors = std::vector<std::vector<float>>;

inline std::vector<ValueId> ParametersOf(const Model& model) {
  std::vector<ValueId> ids;
  for (uint32_t i = 0; i < model.graph.values().size(); ++i) {
    if (model.graph.values()[i].role == Role::kParameter) ids.push_back({i});
  }
  return ids;
}

template <typename T>
class ReferenceNet {
 public:
  // Keeps references to both.
  ReferenceNet(const Model& model, const Batch& batch)
      : model_(model),
        values_(model.graph.values().size()),
        factors_(model.graph.values().size()) {
    std::vector<bool> learned(values_.size());  // a parameter stands behind it
    for (uint32_t i = 0; i < values_.size(); ++i) {
      const Value& value = model.graph.values()[i];
      values_[i].resize(
          static_cast<size_t>(ElementsOf(value.spec, batch.count)));
      learned[i] = value.role == Role::kParameter;
    }
    for (const Op& op : model.graph.ops()) {
      ForwardPass<T> pass{.op = &op, .graph = &model.graph, .batch = &batch};
      pass.kink_margin = learned[op.inputs[0].i] ? &kink_margin_ : nullptr;
      for (ValueId in : op.inputs) {
        pass.in.push_back(At(in).data());
        pass.in_factors.push_back(&factors_[in.i]);
        if (!learned[in.i]) continue;
        for (ValueId out : op.outputs) learned[out.i] = true;
      }
      for (ValueId out : op.outputs) pass.out.push_back(At(out).data());
      entries_.push_back(&EntryOf(*op.def));
      passes_.push_back(std::move(pass));
    }
  }
  // Passes point into it.
  ReferenceNet(const ReferenceNet&) = delete;
  ReferenceNet& operator=(const ReferenceNet&) = delete;

  void Set(const Tensors& parameters) {
    const std::vector<ValueId> ids = ParametersOf(model_);
    TH_CHECK(ids.size() == parameters.size());
    for (size_t k = 0; k < ids.size(); ++k) {
      std::copy(parameters[k].begin(), parameters[k].end(), At(ids[k]).begin());
    }
  }

  std::vector<T>& At(ValueId id) { return values_[id.i]; }

  // Of the model's op k, with the values of the last run.
  const ForwardPass<T>& PassOf(size_t k) const { return passes_[k]; }

  // From now on every value that an op makes, a batch norm's statistics too, is
  // multiplied by a factor in 1 ± epsilon: a sample of what rounding does.
  void RoundRandomly(double epsilon, uint64_t sample) {
    for (size_t v = 0; v < values_.size(); ++v) {
      factors_[v].resize(values_[v].size());
      for (size_t i = 0; i < factors_[v].size(); ++i) {
        factors_[v][i] =
            1 + epsilon * static_cast<double>(kernels::testing::TestValue(
                              sample * 1000 + v, i));
      }
    }
  }

  // The loss. Ops before `first` keep the values of the last run.
  T Run(size_t first = 0) {
    kink_margin_ = std::numeric_limits<double>::infinity();
    for (size_t k = first; k < passes_.size(); ++k) {
      entries_[k]->Forward(passes_[k]);
      if (passes_[k].op->def->IsView()) continue;
      for (ValueId out : passes_[k].op->outputs) Round(out);
    }
    return At(model_.ends.loss)[0];
  }

  // Of the last run: how far the values that depend on parameters stayed away
  // from a place where the loss has no derivative.
  double kink_margin() const { return kink_margin_; }

 private:
  void Round(ValueId id) {
    const std::vector<double>& factors = factors_[id.i];
    for (size_t i = 0; i < factors.size(); ++i) {
      values_[id.i][i] *= static_cast<T>(factors[i]);
    }
  }

  const Model& model_;
  std::vector<std::vector<T>> values_;        // by the model's value ids
  std::vector<std::vector<double>> factors_;  // see RoundRandomly; or empty
  std::vector<const Entry*> entries_;         // by the model's ops
  std::vector<ForwardPass<T>> passes_;
  double kink_margin_ = std::numeric_limits<double>::infinity();
};

// The loss, and its derivatives by all elements of all parameters.
struct LossAndGradients {
  double loss = 0;
  std::vector<std::vector<double>> gradients;
};

// By one complex step for each element: exact to f64 rounding.
inline LossAndGradients ComplexStep(const Model& model,
                                    ReferenceNet<std::complex<double>>& net) {
  constexpr double h = 1e-30;  // its square vanishes beside every real part
  const std::vector<ValueId> ids = ParametersOf(model);
  LossAndGradients result{net.Run().real(), {}};
  result.gradients.resize(ids.size());
  for (size_t k = 0; k < ids.size(); ++k) {
    // Where nobody reads it, no op runs again and the derivative is 0.
    size_t reader = 0;
    while (reader < model.graph.ops().size() &&
           std::ranges::count(model.graph.ops()[reader].inputs, ids[k]) == 0) {
      ++reader;
    }
    for (std::complex<double>& element : net.At(ids[k])) {
      element.imag(h);
      result.gradients[k].push_back(net.Run(reader).imag() / h);
      element.imag(0);
    }
    net.Run(reader);  // leaves no imaginary part behind
  }
  return result;
}

}  // namespace thimble::testing
