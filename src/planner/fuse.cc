// SPDX-License-Identifier: Apache-2.0
#include "planner/fuse.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "graph/op.h"
#include "ops/add.h"
#include "ops/batch_norm.h"
#include "ops/conv2d.h"
#include "ops/fused_conv.h"
#include "ops/image_conv.h"
#include "ops/normalize.h"
#include "ops/relu.h"
#include "planner/graph_copy.h"
#include "thimble/plan_search.h"

namespace thimble::planner {
namespace {

// What an op of the source becomes.
struct Fate {
  enum class Kind { kCopy, kDrop, kFusedConv, kImageConv };
  Kind kind = Kind::kCopy;
  OpId conv, norm, normalize;  // of the fused forms
  ValueId residual;            // invalid without a sum
};

class Fuser {
 public:
  explicit Fuser(const Model& model)
      : model_(model), graph_(model.graph), copy_(model.graph) {
    readers_.resize(graph_.values().size());
    for (uint32_t k = 0; k < graph_.ops().size(); ++k) {
      for (ValueId v : graph_.ops()[k].inputs) readers_[v.i].push_back({k});
    }
    fates_.resize(graph_.ops().size());
  }

  Model Run() {
    for (uint32_t k = 0; k < graph_.ops().size(); ++k) {
      if (Is<ops::Conv2d>(graph_.ops()[k])) Decide({k});
    }
    return Rebuild();
  }

 private:
  bool IsOutput(ValueId v) const {
    return std::ranges::find(model_.ends.outputs, v, &End::value) !=
           model_.ends.outputs.end();
  }

  // The `Def` that made `v`, where nobody but one op reads `v`.
  template <typename Def>
  OpId OnlyMaker(ValueId v) const {
    const OpId maker = graph_.value(v).producer;
    if (!maker.valid() || readers_[v.i].size() != 1) return {};
    if (IsOutput(v)) return {};
    return Is<Def>(graph_.op(maker)) ? maker : OpId{};
  }

  void Decide(OpId conv) {
    const Op& op = graph_.op(conv);
    const OpId normalize = OnlyMaker<ops::Normalize>(op.inputs[0]);
    if (normalize.valid()) {
      fates_[conv.i] = {
          .kind = Fate::Kind::kImageConv, .conv = conv, .normalize = normalize};
      fates_[normalize.i].kind = Fate::Kind::kDrop;
      return;
    }
    const OpId relu = OnlyMaker<ops::Relu>(op.inputs[0]);
    if (!relu.valid()) return;
    const OpId norm = OnlyMaker<ops::BatchNorm>(graph_.op(relu).inputs[0]);
    if (!norm.valid()) return;
    fates_[relu.i].kind = Fate::Kind::kDrop;
    fates_[norm.i].kind = Fate::Kind::kDrop;
    Fate fate{.kind = Fate::Kind::kFusedConv, .conv = conv, .norm = norm};
    // With the sum, the op moves to where the sum stands: there both sides are
    // made.
    const OpId sum = SumOf(op.outputs[0]);
    if (sum.valid() && fates_[sum.i].kind == Fate::Kind::kCopy) {
      const Op& add = graph_.op(sum);
      fate.residual = add.inputs[add.inputs[0] == op.outputs[0] ? 1 : 0];
      fates_[conv.i].kind = Fate::Kind::kDrop;
      fates_[sum.i] = fate;
    } else {
      fates_[conv.i] = fate;
    }
  }

  // The sum of two different values that alone reads `v`.
  OpId SumOf(ValueId v) const {
    if (readers_[v.i].size() != 1 || IsOutput(v)) return {};
    const OpId reader = readers_[v.i][0];
    const Op& op = graph_.op(reader);
    if (!Is<ops::Add>(op) || op.inputs[0] == op.inputs[1]) {
      return {};
    }
    return reader;
  }

  Model Rebuild() {
    for (uint32_t k = 0; k < fates_.size(); ++k) {
      switch (fates_[k].kind) {
        case Fate::Kind::kDrop:
          break;
        case Fate::Kind::kCopy:
          copy_.Add(graph_.ops()[k]);
          break;
        case Fate::Kind::kFusedConv:
          AddFusedConv(fates_[k], graph_.ops()[k].outputs[0]);
          break;
        case Fate::Kind::kImageConv:
          AddImageConv(fates_[k]);
          break;
      }
    }
    return TakeModel(model_, copy_);
  }

  void AddFusedConv(const Fate& fate, ValueId output) {
    const Op& conv = graph_.op(fate.conv);
    const Op& norm = graph_.op(fate.norm);
    const auto& conv_def = static_cast<const ops::Conv2d&>(*conv.def);
    const auto& norm_def = static_cast<const ops::BatchNorm&>(*norm.def);
    std::vector<ValueId> inputs = norm.inputs;
    inputs.push_back(conv.inputs[1]);
    if (fate.residual.valid()) inputs.push_back(fate.residual);
    copy_.AddOp(conv.name,
                std::make_shared<ops::FusedConv>(
                    ops::ConvGeometry{conv_def.stride(), conv_def.padding()},
                    norm_def.attributes(), fate.residual.valid()),
                inputs, {output});
  }

  void AddImageConv(const Fate& fate) {
    const Op& conv = graph_.op(fate.conv);
    const Op& normalize = graph_.op(fate.normalize);
    const auto& conv_def = static_cast<const ops::Conv2d&>(*conv.def);
    const auto& norm_def = static_cast<const ops::Normalize&>(*normalize.def);
    copy_.AddOp(conv.name,
                std::make_shared<ops::ImageConv>(
                    ops::ConvGeometry{conv_def.stride(), conv_def.padding()},
                    norm_def.scale(), norm_def.shift()),
                {normalize.inputs[0], conv.inputs[1]}, conv.outputs);
  }

  const Model& model_;
  const Graph& graph_;
  std::vector<std::vector<OpId>> readers_;  // per value
  std::vector<Fate> fates_;                 // per op
  GraphCopy copy_;
};

}  // namespace

Model Fuse(const Model& model) { return Fuser(model).Run(); }

}  // namespace thimble::planner

namespace thimble {

bool HasFusedConvolutions(const Model& model) {
  const Model fused = planner::Fuse(model);
  return std::ranges::any_of(
      fused.graph.ops(), [](const Op& op) { return Is<ops::FusedConv>(op); });
}

}  // namespace thimble
