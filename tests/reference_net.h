// SPDX-License-Identifier: Apache-2.0
//
// ReferenceNet: a scalar interpreter of a model's mode-free graph in training
// mode (batch statistics), for any T: the definition that the planned, SIMD,
// threaded execution is compared with. It knows no plan and no backward pass;
// with std::complex<double> the derivative of the loss by one parameter is the
// imaginary part of the loss after an imaginary step (the complex step, exact
// to rounding). Kinks (ReLU, max pooling) select by the real part. One thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "graph/op.h"
#include "kernels/conv/reference.h"
#include "kernels/elementwise/reference.h"
#include "kernels/lstm/reference.h"
#include "kernels/matmul/reference.h"
#include "kernels/norm/reference.h"
#include "kernels/pool/reference.h"
#include "kernels/shortcut/reference.h"
#include "kernels/softmax/reference.h"
#include "kernels/testing.h"
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
#include "thimble/graph.h"

namespace thimble::testing {

// `count` rows of a step, from its row `first` on.
struct Batch {
  std::vector<uint8_t> images;
  std::vector<int32_t> labels;
  int64_t count = 0;
  int64_t first = 0;
};

// Of dropouts: the first step of a session after Initialize(kReferenceSeed).
constexpr uint64_t kReferenceSeed = 1;
constexpr uint64_t kReferenceStep = 1;

// Which elements `op`, a dropout, keeps of rows from `first` on.
inline kernels::DropoutMask DropoutMaskOf(const Op& op, int64_t first) {
  const auto& dropout = static_cast<const ops::Dropout&>(*op.def);
  return {.seed = kReferenceSeed,
          .step = kReferenceStep,
          .stream = dropout.stream(),
          .first = first,
          .rate = dropout.rate()};
}

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
        batch_(batch),
        values_(model.graph.values().size()),
        learned_(model.graph.values().size()) {
    for (uint32_t i = 0; i < values_.size(); ++i) {
      const Value& value = model.graph.values()[i];
      values_[i].resize(static_cast<size_t>(Size({i})));
      learned_[i] = value.role == Role::kParameter;
    }
    for (const Op& op : model.graph.ops()) {
      for (ValueId in : op.inputs) {
        if (!learned_[in.i]) continue;
        for (ValueId out : op.outputs) learned_[out.i] = true;
      }
    }
  }

  void Set(const Tensors& parameters) {
    const std::vector<ValueId> ids = ParametersOf(model_);
    TH_CHECK(ids.size() == parameters.size());
    for (size_t k = 0; k < ids.size(); ++k) {
      std::copy(parameters[k].begin(), parameters[k].end(), At(ids[k]).begin());
    }
  }

  std::vector<T>& At(ValueId id) { return values_[id.i]; }

  // From now on every value that an op makes, a batch norm's statistics too, is
  // multiplied by a factor in 1 ± epsilon: a sample of what rounding does.
  void RoundRandomly(double epsilon, uint64_t sample) {
    factors_.resize(values_.size());
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
    for (size_t k = first; k < model_.graph.ops().size(); ++k) {
      const Op& op = model_.graph.ops()[k];
      RunOp(op);
      if (factors_.empty() || op.def->IsView()) continue;
      for (ValueId out : op.outputs) Round(out);
    }
    return At(model_.ends.loss)[0];
  }

  // Of the last run: how far the values that depend on parameters stayed away
  // from a place where the loss has no derivative.
  double kink_margin() const { return kink_margin_; }

 private:
  const ValueSpec& Spec(ValueId id) const {
    return model_.graph.value(id).spec;
  }
  int64_t Size(ValueId id) const {
    const ValueSpec& spec = Spec(id);
    return spec.axis.valid() ? batch_.count * spec.shape.elements_from(1)
                             : spec.shape.elements();
  }

  void RunOp(const Op& op) {
    namespace ref = kernels::reference;
    const int64_t rows = batch_.count;
    const ValueSpec& spec = Spec(op.inputs[0]);
    const Shape& shape = spec.shape;
    const T* x = In(op, 0);
    T* y = At(op.outputs[0]).data();
    if (Is<ops::Normalize>(op)) {
      return Normalize(As<ops::Normalize>(op), shape, y);
    }
    if (Is<ops::ImageSlice>(op)) {
      return ImageSlice(As<ops::ImageSlice>(op), shape, y);
    }
    if (Is<ops::LstmGates>(op)) {
      return LstmGates(op, x, y);
    }
    if (Is<ops::LstmCell>(op)) {
      return LstmCell(op, x, y);
    }
    if (Is<ops::Conv2d>(op)) {
      return ref::Conv2dForward(
          As<ops::Conv2d>(op).ShapeOf(spec, Spec(op.inputs[1])), rows, x,
          In(op, 1), y);
    }
    if (Is<ops::Linear>(op)) {
      return ref::LinearForward<T>(
          {.in = shape[1], .out = Spec(op.inputs[1]).shape[0]}, rows, x,
          In(op, 1), y);
    }
    if (Is<ops::Bias>(op)) {
      return ref::BiasAdd(rows, shape[1], shape.elements_from(2), x, In(op, 1),
                          y);
    }
    if (Is<ops::BatchNorm>(op)) {
      return BatchNorm(op, spec, x, y);
    }
    if (Is<ops::Relu>(op)) {
      return Relu(op, x, y);
    }
    if (Is<ops::Dropout>(op)) {
      return ref::Dropout(rows, shape.elements_from(1),
                          DropoutMaskOf(op, batch_.first), x, y);
    }
    if (Is<ops::MaxPool>(op)) {
      return MaxPool(op, spec, x, y);
    }
    if (Is<ops::AveragePool>(op)) {
      return ref::AveragePool(
          ops::PoolShapeOf(spec, As<ops::AveragePool>(op).window()), rows, x,
          y);
    }
    if (Is<ops::GlobalAveragePool>(op)) {
      return ref::GlobalAveragePool(rows, shape[1], shape.elements_from(2), x,
                                    y);
    }
    if (Is<ops::Add>(op)) {
      return ref::Add(Size(op.outputs[0]), x, In(op, 1), y);
    }
    if (Is<ops::Shortcut>(op)) {
      return ref::Shortcut(As<ops::Shortcut>(op).ShapeOf(spec), rows, x, y);
    }
    if (op.def->IsView()) {
      std::copy_n(x, Size(op.outputs[0]), y);
      return;
    }
    if (Is<ops::SoftmaxCrossEntropy>(op)) {
      int32_t correct = 0;
      return ref::SoftmaxCrossEntropy(rows, shape[1], x, batch_.labels.data(),
                                      y, &correct);
    }
    TH_CHECK(false && "not an op of a model's graph");
  }

  template <typename Def>
  const Def& As(const Op& op) const {
    return static_cast<const Def&>(*op.def);
  }
  const T* In(const Op& op, size_t k) { return At(op.inputs[k]).data(); }

  void Normalize(const ops::Normalize& op, const Shape& shape, T* y) {
    const std::vector<T> scale(op.scale().begin(), op.scale().end());
    const std::vector<T> shift(op.shift().begin(), op.shift().end());
    kernels::reference::NormalizeU8(
        batch_.count, shape[1], shape.elements_from(2), batch_.images.data(),
        scale.data(), shift.data(), y);
  }

  void ImageSlice(const ops::ImageSlice& op, const Shape& shape, T* y) {
    const std::vector<T> scale(op.scale().begin(), op.scale().end());
    const std::vector<T> shift(op.shift().begin(), op.shift().end());
    kernels::reference::NormalizeU8Slice(
        batch_.count, shape[1], shape.elements_from(2), op.begin(), op.count(),
        batch_.images.data(), scale.data(), shift.data(), y);
  }

  void LstmGates(const Op& op, const T* x, T* z) {
    namespace ref = kernels::reference;
    const auto product = [&](size_t weight, const T* of, T* to) {
      const Shape& w = Spec(op.inputs[weight]).shape;
      ref::LinearForward<T>({.in = w[1], .out = w[0]}, batch_.count, of,
                            In(op, weight), to);
    };
    product(1, x, z);
    const int64_t gates = Spec(op.outputs[0]).shape[1];
    if (op.inputs.size() > 3) {
      std::vector<T> recurrent(At(op.outputs[0]).size());
      product(4, In(op, 3), recurrent.data());
      ref::Add(batch_.count * gates, z, recurrent.data(), z);
    }
    ref::BiasAdd(batch_.count, gates, 1, z, In(op, 2), z);
  }

  void LstmCell(const Op& op, const T* z, T* h) {
    kernels::reference::LstmCell<T>(
        {.rows = batch_.count, .hidden = Spec(op.outputs[0]).shape[1]},
        As<ops::LstmCell>(op).forget_offset(), z,
        op.inputs.size() > 1 ? In(op, 1) : nullptr, h, At(op.outputs[1]).data(),
        nullptr);
  }

  // The batch's statistics take the places of the running ones, which training
  // does not read.
  void BatchNorm(const Op& op, const ValueSpec& spec, const T* x, T* y) {
    namespace ref = kernels::reference;
    const kernels::BatchNormShape shape = ops::BatchNormShapeOf(spec);
    T* mean = At(op.inputs[3]).data();
    T* variance = At(op.inputs[4]).data();
    ref::BatchNormStatistics(shape, batch_.count, x, mean, variance);
    if (!factors_.empty()) {
      Round(op.inputs[3]);
      Round(op.inputs[4]);
    }
    ref::BatchNormApply(shape, batch_.count,
                        As<ops::BatchNorm>(op).attributes().epsilon, x,
                        In(op, 1), In(op, 2), mean, variance, y);
  }

  void Relu(const Op& op, const T* x, T* y) {
    for (int64_t i = 0; i < Size(op.inputs[0]); ++i) {
      const double real = std::real(x[i]);
      y[i] = real > 0 ? x[i] : T(0);
      NoteKink(op, std::abs(real));
    }
  }

  void MaxPool(const Op& op, const ValueSpec& spec, const T* x, T* y) {
    int64_t started = -1;
    kernels::reference::ForEachWindow(
        ops::PoolShapeOf(spec, As<ops::MaxPool>(op).window()), batch_.count,
        [&](int64_t out, int64_t in, int64_t) {
          if (out == started) {
            // The largest two meet here, in whatever order they come.
            const double lead = std::real(x[in]) - std::real(y[out]);
            NoteKink(op, std::abs(lead));
            if (!(lead > 0)) return;
          }
          started = out;
          y[out] = x[in];
        });
  }

  void Round(ValueId id) {
    std::vector<T>& values = At(id);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] *= static_cast<T>(factors_[id.i][i]);
    }
  }

  // Exact zeros and ties are no danger: they come from a ReLU, from padding or
  // from equal pixels, f32 finds them equal too, and the first one wins.
  void NoteKink(const Op& op, double distance) {
    if (distance == 0 || !learned_[op.inputs[0].i]) return;
    kink_margin_ = std::min(kink_margin_, distance);
  }

  const Model& model_;
  const Batch& batch_;
  std::vector<std::vector<T>> values_;  // by the model's value ids
  std::vector<bool> learned_;           // a parameter stands behind the value
  std::vector<std::vector<double>> factors_;  // see RoundRandomly; or empty
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
    size_t reader = 0;
    while (std::ranges::count(model.graph.ops()[reader].inputs, ids[k]) == 0) {
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
