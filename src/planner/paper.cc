// SPDX-License-Identifier: Apache-2.0
#include "planner/paper.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "graph/op.h"
#include "ops/add.h"
#include "ops/batch_norm.h"
#include "ops/bias.h"
#include "ops/conv2d.h"
#include "ops/linear.h"
#include "ops/pool.h"
#include "ops/relu.h"
#include "ops/shortcut.h"
#include "ops/softmax_cross_entropy.h"
#include "planner/paper_rebuild.h"
#include "planner/sparse_pool.h"
#include "planner/storage_of.h"

namespace thimble::planner {
namespace {

bool StoresItsInput(const Op& op) {
  return Is<ops::Conv2d>(op) || Is<ops::Linear>(op) || Is<ops::BatchNorm>(op) ||
         Is<ops::SoftmaxCrossEntropy>(op);
}

// Hands its output's gradient on as it is.
bool PassesGradient(const Op& op) {
  return Is<ops::Add>(op) || Is<ops::Shortcut>(op) || op.def->IsView() ||
         Is<ops::Bias>(op);
}

class Accountant {
 public:
  Accountant(const Model& model, DType activations, const PaperRebuild& rebuild)
      : graph_(model.graph), activations_(activations), rebuild_(rebuild) {
    learned_.resize(graph_.values().size());
    readers_.resize(graph_.values().size());
    gradients_.resize(graph_.values().size());
  }

  // Peak of the activations, in bits per batch.
  int64_t PeakBits() {
    Forward();
    for (size_t k = graph_.ops().size(); k-- > 0;) {
      stored_ += RebuiltAt(k);
      Backward(graph_.ops()[k]);
    }
    return peak_;
  }

 private:
  int64_t Bits(ValueId v) const {
    const int64_t elements = graph_.value(v).spec.shape.elements();
    return 8 * static_cast<int64_t>(BytesFor(activations_, elements));
  }

  void Forward() {
    for (size_t i = 0; i < learned_.size(); ++i) {
      learned_[i] = graph_.values()[i].role == Role::kParameter;
    }
    for (size_t k = 0; k < graph_.ops().size(); ++k) {
      const Op& op = graph_.ops()[k];
      bool learned = false;
      for (ValueId v : op.inputs) learned = learned || learned_[v.i];
      for (ValueId v : op.outputs) learned_[v.i] = learned;
      if (StoresItsInput(op) && readers_[op.inputs[0].i]++ == 0 &&
          rebuild_.value_at[op.inputs[0].i] == kStoredByForward) {
        stored_ += Bits(op.inputs[0]);
      }
      if (rebuild_.bits_at[k] == kStoredByForward) stored_ += MaskBits(op);
    }
  }

  // What was dropped and is there again when backward comes to op k.
  int64_t RebuiltAt(size_t k) const {
    const auto at = static_cast<int64_t>(k);
    int64_t bits = 0;
    for (uint32_t i = 0; i < readers_.size(); ++i) {
      if (rebuild_.value_at[i] == at && readers_[i] > 0) bits += Bits({i});
    }
    for (size_t j = 0; j < graph_.ops().size(); ++j) {
      if (rebuild_.bits_at[j] == at) bits += MaskBits(graph_.ops()[j]);
    }
    return bits;
  }

  // What an op stores besides tensors: a bit for each ReLU element, the place
  // of the largest in each pooling window.
  int64_t MaskBits(const Op& op) const {
    const int64_t elements = graph_.value(op.outputs[0]).spec.shape.elements();
    if (Is<ops::Relu>(op)) return elements;
    if (Is<ops::MaxPool>(op)) return 8 * elements;
    return 0;
  }

  void Backward(const Op& op) {
    if (!learned_[op.outputs[0].i]) return;
    std::set<uint32_t> incoming = gradients_[op.outputs[0].i];
    if (PassesGradient(op)) {
      // What is handed on is one tensor, the sum of what came.
      if (incoming.size() > 1) incoming = {NewGradient(op.outputs[0])};
      for (ValueId v : op.inputs) {
        if (!learned_[v.i] || graph_.value(v).role == Role::kParameter)
          continue;
        gradients_[v.i].insert(incoming.begin(), incoming.end());
      }
      gradients_[op.outputs[0].i].clear();
      return;
    }
    // Several contributions are summed into one tensor when it is consumed.
    gradients_[op.outputs[0].i].clear();
    const bool is_loss = Is<ops::SoftmaxCrossEntropy>(op);
    const ValueId of = is_loss ? op.inputs[0] : op.outputs[0];
    std::set<uint32_t> waiting;
    for (const auto& set : gradients_) waiting.insert(set.begin(), set.end());
    int64_t live = stored_ + Bits(of);
    for (uint32_t tensor : waiting) {
      // Where the only contribution also waits elsewhere, it is one tensor.
      if (incoming.size() == 1 && *incoming.begin() == tensor) continue;
      live += sizes_[tensor];
    }
    peak_ = std::max(peak_, live);

    if (StoresItsInput(op) && --readers_[op.inputs[0].i] == 0) {
      stored_ -= Bits(op.inputs[0]);
    }
    stored_ -= MaskBits(op);
    if (learned_[op.inputs[0].i]) {
      gradients_[op.inputs[0].i].insert(NewGradient(op.inputs[0]));
    }
  }

  uint32_t NewGradient(ValueId of) {
    sizes_.push_back(Bits(of));
    return static_cast<uint32_t>(sizes_.size() - 1);
  }

  const Graph& graph_;
  DType activations_;
  const PaperRebuild& rebuild_;
  std::vector<bool> learned_;  // a parameter stands behind the value
  std::vector<int> readers_;   // ops whose backward reads the value
  // Gradient tensors that wait at a value; sizes_ gives their bits.
  std::vector<std::set<uint32_t>> gradients_;
  std::vector<int64_t> sizes_;
  int64_t stored_ = 0;
  int64_t peak_ = 0;
};

// One for weights, gradients and momentum: a column for each block that is
// kept, in as many bits as its own weight needs, and 16 bits for each row.
int64_t IndexBytes(const SparseChoice& sparse) {
  int64_t bits = 0;
  for (size_t m = 0; m < sparse.weights.size(); ++m) {
    bits += sparse.kept[m] * ColumnBits(sparse.matrices[m].columns) +
            16 * sparse.matrices[m].rows;
  }
  return (bits + 7) / 8;
}

}  // namespace

std::optional<PaperFigures> PaperAccounting(const Model& model,
                                            const PlanOptions& options,
                                            const Strategy& strategy) {
  const auto rebuild = FindPaperRebuild(model, strategy);
  if (!rebuild.has_value()) return std::nullopt;
  PaperFigures paper;
  const SparseChoice sparse = *ChooseSparse(model, options.sparse);
  paper.bytes.model += IndexBytes(sparse);
  for (uint32_t i = 0; i < model.graph.values().size(); ++i) {
    const Value& v = model.graph.values()[i];
    if (v.role != Role::kParameter) continue;
    ValueSpec spec = v.spec;
    spec.storage.sparsity = sparse.Of({i}, options.sparse.block);
    const auto bytes = [&spec](Role role, const Precision& precision) {
      spec.storage = StorageOf(spec, role, precision);
      return static_cast<int64_t>(spec.bytes());
    };
    if (options.precision.keeps_gradients || v.spec.shape.rank() < 2) {
      paper.bytes.optimizer += bytes(Role::kGradient, options.precision);
    }
    paper.bytes.model += bytes(Role::kParameter, options.precision);
    for (const Optimizer::State& state : options.optimizer->StateOf(spec)) {
      paper.bytes.optimizer += static_cast<int64_t>(state.spec.bytes());
    }
  }
  // Running and batch mean and variance, what is cached for recomputation, and
  // a step counter.
  const int64_t per_channel = strategy.kind == Strategy::Kind::kNone ? 16 : 24;
  for (const Op& op : model.graph.ops()) {
    if (!Is<ops::BatchNorm>(op)) continue;
    paper.bytes.model +=
        per_channel * model.graph.value(op.inputs[1]).spec.shape[0] + 8;
  }
  paper.bytes.activation =
      (Accountant(model, options.precision.activations, *rebuild).PeakBits() +
       7) /
      8;
  paper.bytes.total =
      paper.bytes.model + paper.bytes.optimizer + paper.bytes.activation;
  paper.flops_ratio = rebuild->flops_ratio;
  return paper;
}

}  // namespace thimble::planner
