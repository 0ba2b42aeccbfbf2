// SPDX-License-Identifier: Apache-2.0
#include "planner/paper_rebuild.h"

#include <algorithm>

#include "graph/op.h"
#include "ops/add.h"
#include "ops/batch_norm.h"
#include "ops/conv2d.h"
#include "ops/linear.h"
#include "ops/normalize.h"
#include "ops/pool.h"
#include "ops/relu.h"

namespace thimble::planner {
namespace {

using Kind = Strategy::Kind;

// Ops [begin, end) between two articulation points.
struct Piece {
  int64_t begin = 0, end = 0;
  ValueId output;     // invalid for the last
  bool sums = false;  // a residual block
};

bool IsMultiplication(const Op& op) {
  return Is<ops::Conv2d>(op) || Is<ops::Linear>(op);
}

class RebuildFinder {
 public:
  RebuildFinder(const Model& model, const Strategy& strategy)
      : graph_(model.graph), strategy_(strategy) {
    rebuild_.value_at.assign(graph_.values().size(), kStoredByForward);
    rebuild_.bits_at.assign(graph_.ops().size(), kStoredByForward);
    last_storer_.assign(graph_.values().size(), kStoredByForward);
    for (int64_t k = 0; k < Ops(); ++k) {
      if (IsMultiplication(OpAt(k)) || Is<ops::BatchNorm>(OpAt(k))) {
        last_storer_[OpAt(k).inputs[0].i] = k;
      }
    }
    FindPieces();
  }

  std::optional<PaperRebuild> Run() {
    switch (strategy_.kind) {
      case Kind::kNone:
        break;
      case Kind::kNoBn:
        for (int64_t k = 0; k < Ops(); ++k) RebuildOnUse(k);
        break;
      case Kind::kEvery:
        // Images are pixels until they are normalised; that piece is no node.
        if (!pieces_.empty() && !HasNode(pieces_[0])) MergeFirst();
        for (const auto& group : Groups(/*blocks_only=*/false)) Drop(group);
        break;
      case Kind::kResidual: {
        const auto groups = Groups(/*blocks_only=*/true);
        if (groups.empty()) return std::nullopt;
        for (const auto& group : groups) Drop(group);
        break;
      }
      default:
        return std::nullopt;
    }
    rebuild_.flops_ratio = FlopsRatio();
    return rebuild_;
  }

 private:
  int64_t Ops() const { return static_cast<int64_t>(graph_.ops().size()); }
  const Op& OpAt(int64_t k) const {
    return graph_.ops()[static_cast<size_t>(k)];
  }

  // Where one value alone is carried on, as FindChain cuts, but in the paper's
  // mode-free graph. No sweep of live bytes (LiveBytesOverTime): which value it
  // is must be known, not how many bytes there are.
  void FindPieces() {
    std::vector<int64_t> last_reader(graph_.values().size(), -1);
    for (int64_t k = 0; k < Ops(); ++k) {
      for (ValueId v : OpAt(k).inputs) last_reader[v.i] = k;
    }
    std::vector<ValueId> crossing;
    Piece piece;
    for (int64_t k = 0; k < Ops(); ++k) {
      piece.sums = piece.sums || Is<ops::Add>(OpAt(k));
      std::erase_if(crossing, [&](ValueId v) { return last_reader[v.i] <= k; });
      for (ValueId v : OpAt(k).outputs) {
        if (last_reader[v.i] > k) crossing.push_back(v);
      }
      piece.end = k + 1;
      if (crossing.size() > 1 || (crossing.empty() && k + 1 < Ops())) continue;
      if (!crossing.empty()) piece.output = crossing[0];
      pieces_.push_back(piece);
      piece = {.begin = k + 1, .end = k + 1, .output = {}};
    }
  }

  bool HasNode(const Piece& piece) const {
    for (int64_t k = piece.begin; k < piece.end; ++k) {
      if (!Is<ops::Normalize>(OpAt(k))) return true;
    }
    return false;
  }
  void MergeFirst() {
    if (pieces_.size() < 2) return;
    pieces_[1].begin = pieces_[0].begin;
    pieces_.erase(pieces_.begin());
  }

  // Pieces by M, or up to each M-th residual block; what stands behind the last
  // block is in no group.
  std::vector<std::vector<Piece>> Groups(bool blocks_only) const {
    std::vector<std::vector<Piece>> groups;
    std::vector<Piece> group;
    size_t kept = 0;  // of `group`, up to its last block
    int64_t count = 0;
    for (const Piece& piece : pieces_) {
      group.push_back(piece);
      if (blocks_only && !piece.sums) continue;
      kept = group.size();
      if (++count % strategy_.m != 0) continue;
      groups.push_back(std::move(group));
      group.clear();
      kept = 0;
    }
    group.resize(kept);
    if (!group.empty()) groups.push_back(std::move(group));
    return groups;
  }

  bool IsInput(ValueId v) const {
    return !graph_.value(v).producer.valid() ||
           Is<ops::Normalize>(graph_.op(graph_.value(v).producer));
  }

  // What a batch norm and a ReLU have made for a convolution, and the bits, are
  // rebuilt when the convolution is back-propagated.
  void RebuildOnUse(int64_t k) {
    const bool is_relu = Is<ops::Relu>(OpAt(k));
    if (!is_relu && !Is<ops::BatchNorm>(OpAt(k))) return;
    const ValueId made = OpAt(k).outputs[0];
    const int64_t user = last_storer_[made.i];
    rebuild_.value_at[made.i] = user;
    if (!is_relu) return;
    rebuild_.bits_at[static_cast<size_t>(k)] =
        user == kStoredByForward ? k : user;
  }

  void Drop(const std::vector<Piece>& group) {
    const int64_t first = group.back().end - 1;  // of its backward
    const ValueId kept = group.back().output;
    for (const Piece& piece : group) {
      for (int64_t k = piece.begin; k < piece.end; ++k) {
        for (ValueId v : OpAt(k).outputs) {
          if (v == kept || IsInput(v)) continue;
          const bool inside = strategy_.star && v != piece.output;
          rebuild_.value_at[v.i] = inside ? piece.end - 1 : first;
        }
        if (Is<ops::Relu>(OpAt(k)) || Is<ops::MaxPool>(OpAt(k))) {
          rebuild_.bits_at[static_cast<size_t>(k)] = first;
        }
        if (strategy_.star) RebuildOnUse(k);
      }
    }
    CountRebuilt(group);
  }

  // Flops of what has to run for `target`, given what is there.
  int64_t FlopsFor(ValueId target, std::vector<bool>& there) const {
    if (there[target.i] || IsInput(target)) return 0;
    there[target.i] = true;
    const Op& op = graph_.op(graph_.value(target).producer);
    int64_t flops = 0;
    if (IsMultiplication(op)) {
      flops = op.def->Flops(graph_.InputSpecs(op), graph_.OutputSpecs(op));
    }
    for (ValueId v : op.inputs) flops += FlopsFor(v, there);
    return flops;
  }

  void CountRebuilt(const std::vector<Piece>& group) {
    std::vector<bool> there(graph_.values().size());
    for (const Piece& piece : pieces_) {
      if (piece.end <= group.front().begin && piece.output.valid()) {
        there[piece.output.i] = true;
      }
    }
    if (!strategy_.star) {
      for (const Piece& piece : group) {
        rebuilt_ += FlopsForStored(piece, group.back().output, there);
      }
      return;
    }
    std::vector<bool> cuts = there;
    for (size_t p = 0; p + 1 < group.size(); ++p) {
      std::vector<bool> on_the_way = cuts;
      rebuilt_ += FlopsFor(group[p].output, on_the_way);
      cuts[group[p].output.i] = true;
    }
    for (const Piece& piece : group) {
      std::vector<bool> on_the_way = cuts;
      rebuilt_ += FlopsForStored(piece, group.back().output, on_the_way);
    }
  }

  // For what backward reads of a piece's values.
  int64_t FlopsForStored(const Piece& piece, ValueId kept,
                         std::vector<bool>& there) const {
    int64_t flops = 0;
    for (int64_t k = piece.begin; k < piece.end; ++k) {
      for (ValueId v : OpAt(k).outputs) {
        if (v == kept || last_storer_[v.i] == kStoredByForward) continue;
        flops += FlopsFor(v, there);
      }
    }
    return flops;
  }

  double FlopsRatio() const {
    int64_t multiplied = 0;
    int64_t rectified = 0;
    for (int64_t k = 0; k < Ops(); ++k) {
      const Op& op = OpAt(k);
      if (IsMultiplication(op)) {
        const int64_t flops =
            op.def->Flops(graph_.InputSpecs(op), graph_.OutputSpecs(op));
        // Forward, the weights' gradient and, but for the first, the input's.
        multiplied += (IsInput(op.inputs[0]) ? 2 : 3) * flops;
      }
      if (Is<ops::Relu>(op) &&
          rebuild_.bits_at[static_cast<size_t>(k)] != kStoredByForward) {
        rectified += 3 * graph_.value(op.outputs[0]).spec.shape.elements();
      }
    }
    if (multiplied == 0) return 1;
    return 1 + static_cast<double>(rebuilt_ + rectified) /
                   static_cast<double>(multiplied);
  }

  const Graph& graph_;
  const Strategy& strategy_;
  std::vector<Piece> pieces_;
  std::vector<int64_t> last_storer_;  // per value: the last op that stores it
  PaperRebuild rebuild_;
  int64_t rebuilt_ = 0;  // flops of convolutions and linear maps
};

}  // namespace

std::optional<PaperRebuild> FindPaperRebuild(const Model& model,
                                             const Strategy& strategy) {
  return RebuildFinder(model, strategy).Run();
}

}  // namespace thimble::planner
