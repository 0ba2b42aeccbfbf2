// SPDX-License-Identifier: Apache-2.0
#include "train/sparse_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "thimble/number.h"

namespace thimble::train {
namespace {

constexpr const char* kNonzero = "nonzero";
constexpr const char* kBlockOutputs = "sparse block outputs";
constexpr const char* kBlockInputs = "sparse block inputs";
constexpr const char* kIndex = "sparse index";
constexpr const char* kWeights = "sparse weights";  // names, a line each

std::vector<std::string> Lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

std::map<std::string, std::string> SparseFactsOf(const Plan& plan) {
  if (!plan.sparse().has_value()) return {};
  const SparsePool& pool = *plan.sparse();
  std::string names;
  for (const uint32_t m : pool.members) {
    const ValueId weight = plan.parameters()[m].parameter;
    if (!names.empty()) names += '\n';
    names += plan.graph().value(weight).name;
  }
  const WeightBlock& block = pool.layout.block();
  return {{kNonzero, fmt::format("{}", plan.options().sparse.nonzero)},
          {kBlockOutputs, fmt::format("{}", block.outputs)},
          {kBlockInputs, fmt::format("{}", block.inputs)},
          {kIndex, IndexCodecName(pool.layout.codec())},
          {kWeights, names}};
}

Result<SparseWeights> ReadSparseFacts(
    const std::map<std::string, std::string>& metadata) {
  SparseWeights sparse;
  if (!metadata.contains(kNonzero)) return sparse;
  const auto text = [&metadata](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  const auto nonzero = ParseDecimal<double>(text(kNonzero));
  const auto outputs = ParseWhole(text(kBlockOutputs));
  const auto inputs = ParseWhole(text(kBlockInputs));
  const auto index = ParseIndexCodec(text(kIndex));
  sparse.weights = Lines(text(kWeights));
  if (!nonzero || !outputs || !inputs || *outputs > 64 || *inputs > 64 ||
      !index.ok() || sparse.weights.empty()) {
    return Status::Failed(
        "what the file says of its sparse weights makes no sense");
  }
  sparse.nonzero = *nonzero;
  sparse.block = {static_cast<int64_t>(*outputs),
                  static_cast<int64_t>(*inputs)};
  sparse.index = *index;
  TH_RETURN_IF_ERROR(sparse.Check());
  return sparse;
}

}  // namespace thimble::train
