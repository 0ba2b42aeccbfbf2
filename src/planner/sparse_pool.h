// SPDX-License-Identifier: Apache-2.0
//
// Which weights of a model are sparse, and the pools of their values. Pure.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "graph/op.h"
#include "planner/program.h"
#include "thimble/graph.h"
#include "thimble/optimizer.h"
#include "thimble/plan.h"
#include "thimble/sparse_weights.h"

namespace thimble::planner {

// The sparse weights of a graph, in its order.
struct SparseChoice {
  std::vector<ValueId> weights;
  std::vector<BlockMatrix> matrices;
  std::vector<int64_t> kept;  // of each, when training begins

  // How the weight is kept, if it is one of them.
  std::optional<Sparsity> Of(ValueId weight, const WeightBlock& block) const;
};

// Where `options` name no weights, the model says which. Fails where a name has
// no weight, no weight is left, or blocks do not divide one.
Result<SparseChoice> ChooseSparse(const Model& model,
                                  const SparseWeights& options);

// Whether the model can be trained so: each weight is read by one op, which
// takes sparse ones.
Status CheckSparse(const Model& model, const PlanOptions& options);

// What there is of each sparse weight.
struct PoolValues {
  ValueSpec weight;  // of one of them
  const SparseWeights& options;
  std::optional<Storage> gradient = std::nullopt;  // where it is stored
  std::vector<Optimizer::State> state = {};
};

// Adds the pools' values to a graph. Members are not known yet.
SparsePool AddPools(const SparseChoice& choice, const PoolValues& of,
                    Graph& graph);

// Adds the op that rewires the pool.
void EmitRewiring(const SparsePool& pool, Emitter& emit);

// Per value of the program: the pool that it is a member of, if it is one.
std::vector<ValueId> PoolsOf(const Program& program);

// Whether `text` is `pattern`, in which * stands for any text.
bool Matches(std::string_view text, std::string_view pattern);

}  // namespace thimble::planner
