// SPDX-License-Identifier: Apache-2.0
//
// The scalar backward pass beside ReferenceNet, in f64, from the kernels'
// reference gradients. Not an oracle (complex steps are): it is what every
// value and every gradient can be disturbed in, to see how far f32 roundings
// carry in a backward pass. One thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "graph/op.h"
#include "ops/add.h"
#include "ops/batch_norm.h"
#include "ops/bias.h"
#include "ops/conv2d.h"
#include "ops/dropout.h"
#include "ops/image_slice.h"
#include "ops/linear.h"
#include "ops/lstm_cell.h"
#include "ops/lstm_gates.h"
#include "ops/normalize.h"
#include "ops/pool.h"
#include "ops/relu.h"
#include "ops/shortcut.h"
#include "ops/softmax_cross_entropy.h"
#include "reference_net.h"

namespace thimble::testing {

class ReferenceBackward {
 public:
  // Keeps references to both. With epsilon > 0 every value and gradient that an
  // op makes is multiplied by a factor in 1 ± epsilon, another for each sample.
  ReferenceBackward(const Model& model, const Batch& batch, double epsilon,
                    uint64_t sample)
      : model_(model),
        rows_(batch.count),
        first_(batch.first),
        labels_(batch.labels.data()),
        forward_(model, batch),
        factors_(epsilon, sample) {
    if (epsilon > 0) forward_.RoundRandomly(epsilon, sample);
  }

  LossAndGradients Run(const Tensors& parameters) {
    forward_.Set(parameters);
    LossAndGradients result{forward_.Run(), {}};
    gradients_.clear();
    for (uint32_t i = 0; i < model_.graph.values().size(); ++i) {
      gradients_.emplace_back(forward_.At({i}).size());
    }
    for (size_t k = model_.graph.ops().size(); k-- > 0;) {
      Backward(model_.graph.ops()[k]);
    }
    for (ValueId id : ParametersOf(model_)) {
      result.gradients.push_back(gradients_[id.i]);
    }
    return result;
  }

 private:
  using Tensor = std::vector<double>;

  const double* Value(const Op& op, size_t k) {
    return forward_.At(op.inputs[k]).data();
  }
  const ValueSpec& Spec(const Op& op, size_t k) const {
    return model_.graph.value(op.inputs[k]).spec;
  }
  template <typename Def>
  const Def& As(const Op& op) const {
    return static_cast<const Def&>(*op.def);
  }

  // Calls fill(pointer) on a tensor like input k and adds it, rounded, to that
  // input's gradient.
  template <typename F>
  void Give(const Op& op, size_t k, const F& fill) {
    Tensor& sum = gradients_[op.inputs[k].i];
    Tensor made(sum.size());
    fill(made.data());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += made[i] * factors_.Next();
  }

  void Backward(const Op& op) {
    namespace ref = kernels::reference;
    const ValueSpec& spec = Spec(op, 0);
    const Shape& shape = spec.shape;
    const double* g = gradients_[op.outputs[0].i].data();
    if (Is<ops::Normalize>(op) || Is<ops::ImageSlice>(op)) {
      return;  // images are not learned
    }
    if (Is<ops::LstmGates>(op)) {
      return LstmGates(op, g);
    }
    if (Is<ops::LstmCell>(op)) {
      return LstmCell(op, g);
    }
    if (Is<ops::Conv2d>(op)) {
      const auto s = As<ops::Conv2d>(op).ShapeOf(spec, Spec(op, 1));
      const double *x = Value(op, 0), *w = Value(op, 1);
      Give(op, 1,
           [&](double* gw) { ref::Conv2dGradWeight(s, rows_, x, g, gw); });
      return Give(
          op, 0, [&](double* gx) { ref::Conv2dGradInput(s, rows_, g, w, gx); });
    }
    if (Is<ops::Linear>(op)) {
      const kernels::LinearShape s{shape[1], Spec(op, 1).shape[0]};
      const double *x = Value(op, 0), *w = Value(op, 1);
      Give(op, 1,
           [&](double* gw) { ref::LinearGradWeight(s, rows_, x, g, gw); });
      return Give(
          op, 0, [&](double* gx) { ref::LinearGradInput(s, rows_, g, w, gx); });
    }
    if (Is<ops::Bias>(op)) {
      Give(op, 1, [&](double* gb) {
        ref::BiasGrad(rows_, shape[1], shape.elements_from(2), g, gb);
      });
      return Pass(op, 0, g);
    }
    if (Is<ops::Add>(op)) {
      Pass(op, 0, g);
      return Pass(op, 1, g);
    }
    if (op.def->IsView()) {
      return Pass(op, 0, g);
    }
    if (Is<ops::BatchNorm>(op)) {
      return BatchNorm(op, g);
    }
    return Give(op, 0, [&](double* gx) { OneInput(op, g, gx); });
  }

  void Pass(const Op& op, size_t k, const double* g) {
    Tensor& sum = gradients_[op.inputs[k].i];
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += g[i];
  }

  void BatchNorm(const Op& op, const double* g) {
    namespace ref = kernels::reference;
    const auto shape = ops::BatchNormShapeOf(Spec(op, 0));
    const double epsilon = As<ops::BatchNorm>(op).attributes().epsilon;
    const double *x = Value(op, 0), *scale = Value(op, 1);
    const double *mean = Value(op, 3), *variance = Value(op, 4);
    Tensor gx(gradients_[op.inputs[0].i].size());
    Tensor gamma(gradients_[op.inputs[1].i].size()), beta(gamma.size());
    ref::BatchNormGrad(shape, rows_, static_cast<float>(epsilon), x, scale,
                       mean, variance, g, gx.data(), gamma.data(), beta.data());
    // The same formula again with each term disturbed: terms can be much larger
    // than their sum.
    Tensor sum_g(beta.size()), sum_gx(beta.size());
    const auto normal = [&](size_t c, int64_t at) {
      return (x[at] - mean[c]) / std::sqrt(variance[c] + epsilon);
    };
    ref::ForEachPixel(shape, rows_, [&](int64_t channel, int64_t at) {
      const auto c = static_cast<size_t>(channel);
      sum_g[c] += g[at] * factors_.Next();
      sum_gx[c] += g[at] * normal(c, at) * factors_.Next();
    });
    const double count = static_cast<double>(rows_ * shape.pixels);
    ref::ForEachPixel(shape, rows_, [&](int64_t channel, int64_t at) {
      const auto c = static_cast<size_t>(channel);
      gx[static_cast<size_t>(at)] =
          scale[c] / std::sqrt(variance[c] + epsilon) *
          (g[at] * factors_.Next() - sum_g[c] / count * factors_.Next() -
           normal(c, at) * sum_gx[c] / count * factors_.Next());
    });
    const Tensor* made[] = {&gx, &gamma, &beta};
    for (size_t k = 0; k < 3; ++k) {
      Give(op, k, [&](double* to) {
        std::copy(made[k]->begin(), made[k]->end(), to);
      });
    }
  }

  void LstmGates(const Op& op, const double* g) {
    namespace ref = kernels::reference;
    const auto product = [&](size_t of, size_t weight) {
      const Shape& shape = Spec(op, weight).shape;
      const kernels::LinearShape s{shape[1], shape[0]};
      const double *x = Value(op, of), *w = Value(op, weight);
      Give(op, weight,
           [&](double* gw) { ref::LinearGradWeight(s, rows_, x, g, gw); });
      Give(op, of,
           [&](double* gx) { ref::LinearGradInput(s, rows_, g, w, gx); });
    };
    product(0, 1);
    Give(op, 2, [&](double* gb) {
      ref::BiasGrad(rows_, Spec(op, 2).shape[0], 1, g, gb);
    });
    if (op.inputs.size() > 3) product(3, 4);
  }

  // Gates are not kept by the forward pass here; they are made again.
  void LstmCell(const Op& op, const double* grad_h) {
    namespace ref = kernels::reference;
    const kernels::LstmShape shape{rows_, Spec(op, 0).shape[1] / 4};
    const bool recurrent = op.inputs.size() > 1;
    const double* before = recurrent ? Value(op, 1) : nullptr;
    Tensor gates(forward_.At(op.inputs[0]).size());
    Tensor h(forward_.At(op.outputs[0]).size()), c(h.size());
    Tensor grad_z(gates.size()), grad_before(h.size());
    ref::LstmCell<double>(shape, As<ops::LstmCell>(op).forget_offset(),
                          Value(op, 0), before, h.data(), c.data(),
                          gates.data());
    for (double& gate : gates) gate *= factors_.Next();
    ref::LstmCellGrad<double>(shape, gates.data(), before, grad_h,
                              gradients_[op.outputs[1].i].data(), grad_z.data(),
                              grad_before.data());
    const Tensor* made[] = {&grad_z, &grad_before};
    for (size_t k = 0; k < op.inputs.size(); ++k) {
      Give(op, k, [&](double* to) {
        std::copy(made[k]->begin(), made[k]->end(), to);
      });
    }
  }

  void OneInput(const Op& op, const double* g, double* gx) {
    namespace ref = kernels::reference;
    const ValueSpec& spec = Spec(op, 0);
    const Shape& shape = spec.shape;
    if (Is<ops::Relu>(op)) {
      const Tensor& y = forward_.At(op.outputs[0]);
      return ref::ReluGradFromOutput(static_cast<int64_t>(y.size()), y.data(),
                                     g, gx);
    }
    if (Is<ops::Dropout>(op)) {
      return ref::Dropout(rows_, shape.elements_from(1),
                          DropoutMaskOf(op, first_), g, gx);
    }
    if (Is<ops::MaxPool>(op)) {
      const auto s = ops::PoolShapeOf(spec, As<ops::MaxPool>(op).window());
      Tensor y(forward_.At(op.outputs[0]).size());
      std::vector<uint8_t> winner(y.size());
      ref::MaxPool(s, rows_, Value(op, 0), y.data(), winner.data());
      return ref::MaxPoolGrad(s, rows_, winner.data(), g, gx);
    }
    if (Is<ops::AveragePool>(op)) {
      return ref::AveragePoolGrad(
          ops::PoolShapeOf(spec, As<ops::AveragePool>(op).window()), rows_, g,
          gx);
    }
    if (Is<ops::GlobalAveragePool>(op)) {
      return ref::GlobalAveragePoolGrad(rows_, shape[1], shape.elements_from(2),
                                        g, gx);
    }
    if (Is<ops::Shortcut>(op)) {
      return ref::ShortcutGrad(As<ops::Shortcut>(op).ShapeOf(spec), rows_, g,
                               gx);
    }
    if (Is<ops::SoftmaxCrossEntropy>(op)) {
      return ref::SoftmaxCrossEntropyGrad(rows_, shape[1], Value(op, 0),
                                          labels_,
                                          1.0 / static_cast<double>(rows_), gx);
    }
    TH_CHECK(false && "not an op of a model's graph");
  }

  class Factors {
   public:
    Factors(double epsilon, uint64_t sample)
        : epsilon_(epsilon), sample_(sample) {}
    double Next() {
      if (epsilon_ == 0) return 1;
      return 1 + epsilon_ * static_cast<double>(kernels::testing::TestValue(
                                sample_ * 1000 + 998, next_++));
    }

   private:
    double epsilon_;
    uint64_t sample_;
    uint64_t next_ = 0;
  };

  const Model& model_;
  int64_t rows_;
  int64_t first_;
  const int32_t* labels_;
  ReferenceNet<double> forward_;
  Factors factors_;
  std::vector<Tensor> gradients_;  // by the model's value ids
};

}  // namespace thimble::testing
