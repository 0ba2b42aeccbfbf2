// SPDX-License-Identifier: Apache-2.0
#include "planner/sparse_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "base/check.h"
#include "graph/op.h"
#include "ops/rewire.h"

namespace thimble::planner {
namespace {

// What has outputs and inputs.
std::vector<ValueId> WeightsOf(const Graph& graph) {
  std::vector<ValueId> weights;
  for (uint32_t i = 0; i < graph.values().size(); ++i) {
    const Value& value = graph.values()[i];
    if (value.role == Role::kParameter && value.spec.shape.rank() >= 2) {
      weights.push_back({i});
    }
  }
  return weights;
}

// An op that reads the weight as a dense one, if there is one.
const Op* DenseReader(const Graph& graph, ValueId weight) {
  for (const Op& op : graph.ops()) {
    for (uint32_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] != weight) continue;
      if (((op.def->TakesSparse() >> i) & 1) == 0) return &op;
    }
  }
  return nullptr;
}

std::string NamesOf(const Graph& graph, const std::vector<ValueId>& weights) {
  std::string names;
  for (ValueId v : weights) {
    names += (names.empty() ? "" : ", ") + graph.value(v).name;
  }
  return names;
}

Result<std::vector<ValueId>> Named(const Graph& graph,
                                   const std::vector<ValueId>& weights,
                                   const std::vector<std::string>& names) {
  std::vector<bool> named(weights.size());
  for (const std::string& name : names) {
    bool any = false;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (!Matches(graph.value(weights[i]).name, name)) continue;
      named[i] = any = true;
    }
    if (any) continue;
    return Status::Usage(
        fmt::format("no weight is called '{}' (SparseWeights::weights); the "
                    "weights are {}",
                    name, NamesOf(graph, weights)));
  }
  std::vector<ValueId> chosen;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (named[i]) chosen.push_back(weights[i]);
  }
  return chosen;
}

Result<std::vector<ValueId>> Chosen(const Model& model,
                                    const SparseWeights& options) {
  const Graph& graph = model.graph;
  std::vector<ValueId> weights = WeightsOf(graph);
  const auto& names =
      options.weights.empty() ? model.sparse_weights : options.weights;
  if (!names.empty()) return Named(graph, weights, names);
  std::vector<ValueId> chosen;
  for (size_t i = 1; i + 1 < weights.size(); ++i) {
    if (DenseReader(graph, weights[i]) == nullptr) chosen.push_back(weights[i]);
  }
  if (!chosen.empty()) return chosen;
  std::erase_if(weights,
                [&](ValueId v) { return DenseReader(graph, v) != nullptr; });
  const char* says =
      "the first and the last weight stay dense, and none between them can be "
      "sparse";
  if (weights.empty()) return Status::Usage(says);
  return Status::Usage(
      fmt::format("{}; name those to be sparse (SparseWeights::weights) of {}",
                  says, NamesOf(graph, weights)));
}

PoolLayout LayoutOf(const SparseChoice& choice, const SparseWeights& options) {
  const int64_t kept =
      std::accumulate(choice.kept.begin(), choice.kept.end(), int64_t{0});
  if (!options.index.has_value()) {
    return PoolLayout::Smallest(choice.matrices, options.block, kept);
  }
  return {choice.matrices, options.block, kept, *options.index};
}

}  // namespace

bool Matches(std::string_view text, std::string_view pattern) {
  // Where the last * was, and what it stands for so far.
  size_t t = 0, p = 0, star = std::string_view::npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::optional<Sparsity> SparseChoice::Of(ValueId weight,
                                         const WeightBlock& block) const {
  const auto found = std::ranges::find(weights, weight);
  if (found == weights.end()) return std::nullopt;
  const auto m = static_cast<size_t>(found - weights.begin());
  return Sparsity{kept[m], block, static_cast<uint32_t>(m)};
}

Result<SparseChoice> ChooseSparse(const Model& model,
                                  const SparseWeights& options) {
  SparseChoice choice;
  if (options.is_dense()) return choice;
  TH_ASSIGN_OR_RETURN(choice.weights, Chosen(model, options));
  for (ValueId v : choice.weights) {
    const auto matrix =
        BlocksOf(model.graph.value(v).spec.shape, options.block);
    if (!matrix.ok()) {
      return Status::Usage(
          fmt::format("'{}': {}; name the weights to be "
                      "sparse (SparseWeights::weights)",
                      model.graph.value(v).name, matrix.status().message()));
    }
    choice.matrices.push_back(*matrix);
    choice.kept.push_back(KeptOf(options.nonzero, *matrix));
  }
  return choice;
}

Status CheckSparse(const Model& model, const PlanOptions& options) {
  TH_RETURN_IF_ERROR(options.sparse.Check());
  TH_ASSIGN_OR_RETURN(const SparseChoice choice,
                      ChooseSparse(model, options.sparse));
  for (ValueId v : choice.weights) {
    const std::string& name = model.graph.value(v).name;
    const Op* dense = DenseReader(model.graph, v);
    if (dense != nullptr) {
      return Status::Usage(
          fmt::format("'{}' cannot be sparse: {} '{}' takes dense weights only "
                      "(SparseWeights::weights)",
                      name, dense->def->name(), dense->name));
    }
    const auto readers = std::ranges::count_if(
        model.graph.ops(),
        [v](const Op& op) { return std::ranges::count(op.inputs, v) > 0; });
    if (readers == 1) continue;
    return Status::Usage(fmt::format(
        "'{}' is read by {} ops, and a sparse weight's gradient is not summed "
        "up over them; leave it dense (SparseWeights::weights)",
        name, readers));
  }
  return Status::Ok();
}

SparsePool AddPools(const SparseChoice& choice, const PoolValues& of,
                    Graph& graph) {
  SparsePool pool{.layout = LayoutOf(choice, of.options)};
  const auto bytes = static_cast<int64_t>(pool.layout.index_bytes());
  pool.index =
      graph.AddValue("sparse.index", {{bytes}, DType::kU8}, Role::kParameter);
  const auto add = [&](std::string_view name, Storage storage, Role role) {
    int64_t values = pool.layout.kept() * pool.layout.block().values();
    if (storage.blocks.has_value()) {  // each member begins one
      values +=
          storage.blocks->values * static_cast<int64_t>(pool.layout.size());
    }
    storage.sparsity.reset();
    return graph.AddValue(fmt::format("sparse.{}", name), {{values}, storage},
                          role);
  };
  pool.parameters = add("weights", of.weight.storage, Role::kParameter);
  if (of.gradient.has_value()) {
    pool.gradients = add("gradients", *of.gradient, Role::kGradient);
  }
  for (const Optimizer::State& kept : of.state) {
    if (!kept.spec.storage.sparsity.has_value()) continue;
    pool.state.push_back(
        add(kept.name, kept.spec.storage, Role::kOptimizerState));
  }
  return pool;
}

void EmitRewiring(const SparsePool& pool, Emitter& emit) {
  std::vector<ValueId> inputs = {pool.index, pool.parameters};
  inputs.insert(inputs.end(), pool.state.begin(), pool.state.end());
  emit.Emit("rewire", std::make_shared<ops::Rewire>(pool.layout),
            std::move(inputs), Role::kParameter);
}

std::vector<ValueId> PoolsOf(const Program& program) {
  const auto values = program.graph.values();
  std::vector<ValueId> pools(values.size());
  if (!program.sparse.has_value()) return pools;
  const SparsePool& sparse = *program.sparse;
  for (uint32_t i = 0; i < values.size(); ++i) {
    if (!values[i].spec.storage.sparsity.has_value()) continue;
    if (values[i].role == Role::kParameter) pools[i] = sparse.parameters;
    if (values[i].role == Role::kGradient) pools[i] = sparse.gradients;
  }
  for (uint32_t m : sparse.members) {
    const ParameterState& member = program.parameters[m];
    TH_CHECK(!member.gradient.valid() ||
             values[member.gradient.i].spec.storage.sparsity.has_value());
    size_t piece = 0;
    for (ValueId v : member.state) {
      if (!program.graph.value(v).spec.storage.sparsity.has_value()) continue;
      pools[v.i] = sparse.state[piece++];
    }
  }
  return pools;
}

}  // namespace thimble::planner
