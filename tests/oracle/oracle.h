// SPDX-License-Identifier: Apache-2.0
//
// The oracle: one entry for each op that a network can hold, with the op's
// scalar definition for any T, its backward in f64, and samples, the ways to
// put it into a network. All that tests know of single ops stands here: the
// interpreter (reference_net.h), gradients, needs, storage types and random
// networks take what entries say. A new op is a new file of this folder, which
// CMake finds:
//
//   struct NegateEntry {
//     using Def = ops::Negate;
//     template <typename T>
//     static void Forward(const Def& def, const ForwardPass<T>& pass);
//     static void Backward(const Def& def, BackwardPass& pass);
//     static std::vector<Sample> Samples();
//   };
//   const Registration<NegateEntry> kNegateEntry;
//
// Entries are fixed once main has started, and may be read from any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <typeindex>
#include <typeinfo>
#include <utility>
#include <vector>

#include "graph/op.h"
#include "kernels/testing.h"
#include "thimble/graph.h"
#include "thimble/network.h"

namespace thimble::testing {

// `count` rows of a step, from its row `first` on. Where a network has texts,
// each of them holds these tokens, in sentences of `sentence`.
struct Batch {
  static constexpr int64_t kVocabulary = 12;  // of tokens

  std::vector<uint8_t> images;
  std::vector<int32_t> labels;
  std::vector<int32_t> tokens;
  int64_t count = 0;
  int64_t first = 0;
  int64_t sentence = 3;

  // Behind the last token of each sentence.
  std::vector<int32_t> Ends() const {
    std::vector<int32_t> ends;
    for (int64_t end = sentence; end < count; end += sentence) {
      ends.push_back(static_cast<int32_t>(end));
    }
    ends.push_back(static_cast<int32_t>(count));
    return ends;
  }
};

// Of ops with chance: the first step of a session after
// Initialize(kReferenceSeed).
constexpr uint64_t kReferenceSeed = 1;
constexpr uint64_t kReferenceStep = 1;

// Elements of a value in a run of `rows` rows.
inline int64_t ElementsOf(const ValueSpec& spec, int64_t rows) {
  return spec.axis.valid() ? rows * spec.shape.elements_from(1)
                           : spec.shape.elements();
}

// One op of a scalar forward pass.
template <typename T>
struct ForwardPass {
  const Op* op;
  const Graph* graph;
  const Batch* batch;
  std::vector<T*> in, out;
  // Of the inputs, element by element; empty where nothing is disturbed.
  std::vector<const std::vector<double>*> in_factors;
  double* kink_margin;  // null where no parameter stands behind input 0

  int64_t rows() const { return batch->count; }
  const T* In(size_t k) const { return in[k]; }
  const ValueSpec& InSpec(size_t k) const {
    return graph->value(op->inputs[k]).spec;
  }
  const Shape& InShape(size_t k) const { return InSpec(k).shape; }
  const Shape& OutShape(size_t k) const {
    return graph->value(op->outputs[k]).spec.shape;
  }
  int64_t InElements(size_t k) const { return ElementsOf(InSpec(k), rows()); }
  int64_t OutElements(size_t k) const {
    return ElementsOf(graph->value(op->outputs[k]).spec, rows());
  }

  // For what an op leaves in an input, as a batch norm its statistics: a sample
  // of what rounding does. Outputs are rounded by who runs the pass.
  void RoundInput(size_t k) const {
    for (size_t i = 0; i < in_factors[k]->size(); ++i) {
      in[k][i] *= static_cast<T>((*in_factors[k])[i]);
    }
  }

  // A value is `distance` away from where its op has no derivative. Exact zeros
  // and ties are no danger: they come from a ReLU, from padding or from equal
  // pixels, f32 finds them equal too, and the first one wins.
  void NoteKink(double distance) const {
    if (distance == 0 || kink_margin == nullptr) return;
    *kink_margin = std::min(*kink_margin, distance);
  }
};

// Numbers in 1 ± epsilon, other ones for each sample; 1 for an epsilon of 0.
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

// The same op of the backward pass: it adds to its inputs' gradients.
struct BackwardPass {
  const ForwardPass<double>& forward;
  std::vector<const double*> grad_out;
  std::vector<std::vector<double>*> grad_in;
  Factors& factors;

  int64_t rows() const { return forward.rows(); }
  const double* In(size_t k) const { return forward.in[k]; }
  const double* Out(size_t k) const { return forward.out[k]; }

  // Calls fill(pointer) on a tensor like input k and adds it, rounded, to that
  // input's gradient.
  template <typename F>
  void Give(size_t k, const F& fill) {
    std::vector<double> made(grad_in[k]->size());
    fill(made.data());
    for (size_t i = 0; i < made.size(); ++i) {
      (*grad_in[k])[i] += made[i] * factors.Next();
    }
  }
  // The gradient of output 0 is that of input k as it is.
  void PassOn(size_t k) {
    for (size_t i = 0; i < grad_in[k]->size(); ++i) {
      (*grad_in[k])[i] += grad_out[0][i];
    }
  }
};

// What a sample is put on: images [N, C, H, W], rows [N, I], or nothing, where
// it starts the network itself.
enum class On : uint8_t { kImages, kRows, kNothing };

// The op once in a network, with what it needs beside it.
struct Sample {
  std::string what;  // its attributes: "kernel 3, stride 2"
  On on = On::kImages;
  // Returns images or rows. Names of parameters begin with `name`.
  std::function<ValueId(Network& net, ValueId x, const std::string& name)> add;
  // Whether x of this shape, which the op takes, makes sense too.
  std::function<bool(const Shape& x)> fits = [](const Shape&) { return true; };
};

class Entry {
 public:
  virtual ~Entry() = default;
  virtual const std::type_info& def() const = 0;
  virtual void Forward(const ForwardPass<double>& pass) const = 0;
  virtual void Forward(const ForwardPass<std::complex<double>>& p) const = 0;
  virtual void Backward(BackwardPass& pass) const = 0;
  virtual std::vector<Sample> Samples() const = 0;
};

// In an order that depends on nothing but the ops there are.
std::vector<const Entry*> Entries();
// REQUIRES: the op has an entry.
const Entry& EntryOf(const OpDef& def);

void AddEntry(std::unique_ptr<const Entry> entry);

template <typename E>
class EntryFor final : public Entry {
 public:
  const std::type_info& def() const override { return typeid(typename E::Def); }
  void Forward(const ForwardPass<double>& pass) const override {
    E::Forward(DefOf(pass), pass);
  }
  void Forward(const ForwardPass<std::complex<double>>& pass) const override {
    E::Forward(DefOf(pass), pass);
  }
  void Backward(BackwardPass& pass) const override {
    E::Backward(DefOf(pass.forward), pass);
  }
  std::vector<Sample> Samples() const override { return E::Samples(); }

 private:
  template <typename T>
  static const typename E::Def& DefOf(const ForwardPass<T>& pass) {
    return static_cast<const typename E::Def&>(*pass.op->def);
  }
};

template <typename E>
struct Registration {
  Registration() { AddEntry(std::make_unique<EntryFor<E>>()); }
};

}  // namespace thimble::testing
