// SPDX-License-Identifier: Apache-2.0
#include "train/sparse_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
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
constexpr const char* kShapes =
    "sparse weights shapes";  // the same: "32,16,3,3"

// No weight has more elements, so that what is computed of them fits.
constexpr int64_t kMaxElements = int64_t{1} << 40;

std::vector<std::string> Lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string LineOf(const Shape& shape) {
  std::string line;
  for (size_t axis = 0; axis < shape.rank(); ++axis) {
    line += fmt::format("{}{}", axis == 0 ? "" : ",", shape[axis]);
  }
  return line;
}

// None where it is not the shape of a weight that can be sparse.
std::optional<Shape> ShapeOf(std::string_view line) {
  std::array<int64_t, Shape::kMaxRank> extents{};
  size_t rank = 0;
  int64_t elements = 1;
  while (true) {
    const size_t comma = std::min(line.find(','), line.size());
    const auto extent = ParseWhole(line.substr(0, comma));
    if (!extent || *extent < 1 || *extent > uint64_t{kMaxElements} ||
        rank == extents.size()) {
      return std::nullopt;
    }
    extents[rank++] = static_cast<int64_t>(*extent);
    if (__builtin_mul_overflow(elements, extents[rank - 1], &elements) ||
        elements > kMaxElements) {
      return std::nullopt;
    }
    if (comma == line.size()) break;
    line.remove_prefix(comma + 1);
  }
  switch (rank) {
    case 2:
      return Shape{extents[0], extents[1]};
    case 3:
      return Shape{extents[0], extents[1], extents[2]};
    case 4:
      return Shape{extents[0], extents[1], extents[2], extents[3]};
    case 5:
      return Shape{extents[0], extents[1], extents[2], extents[3], extents[4]};
    default:
      return std::nullopt;
  }
}

Status Senseless(const char* what) {
  return Status::Failed(fmt::format(
      "what the file says of its sparse weights makes no sense: {}", what));
}

}  // namespace

std::map<std::string, std::string> SparseFactsOf(const Plan& plan) {
  if (!plan.sparse().has_value()) return {};
  const SparsePool& pool = *plan.sparse();
  std::string names, shapes;
  for (const uint32_t m : pool.members) {
    const ValueId weight = plan.parameters()[m].parameter;
    if (!names.empty()) {
      names += '\n';
      shapes += '\n';
    }
    names += plan.graph().value(weight).name;
    shapes += LineOf(plan.graph().value(weight).spec.shape);
  }
  const WeightBlock& block = pool.layout.block();
  return {{kNonzero, fmt::format("{}", plan.options().sparse.nonzero)},
          {kBlockOutputs, fmt::format("{}", block.outputs)},
          {kBlockInputs, fmt::format("{}", block.inputs)},
          {kIndex, IndexCodecName(pool.layout.codec())},
          {kWeights, names},
          {kShapes, shapes}};
}

Result<SparseFacts> ReadSparseFacts(
    const std::map<std::string, std::string>& metadata,
    std::string_view prefix) {
  const auto text = [&](const char* key) {
    const auto found = metadata.find(std::string(prefix) + key);
    return found == metadata.end() ? std::string() : found->second;
  };
  SparseFacts facts;
  if (!metadata.contains(std::string(prefix) + kNonzero)) return facts;
  SparseWeights& sparse = facts.sparse;
  const auto nonzero = ParseDecimal<double>(text(kNonzero));
  const auto outputs = ParseWhole(text(kBlockOutputs));
  const auto inputs = ParseWhole(text(kBlockInputs));
  const auto index = ParseIndexCodec(text(kIndex));
  sparse.weights = Lines(text(kWeights));
  if (!nonzero || !outputs || !inputs || *outputs > 64 || *inputs > 64 ||
      !index.ok() || *nonzero == 1.0 || sparse.weights.empty()) {
    return Senseless("how they are kept");
  }
  sparse.nonzero = *nonzero;
  sparse.block = {static_cast<int64_t>(*outputs),
                  static_cast<int64_t>(*inputs)};
  sparse.index = *index;
  const Status possible = sparse.Check();
  if (!possible.ok()) return Senseless(possible.message().c_str());
  std::vector<std::string_view> names(sparse.weights.begin(),
                                      sparse.weights.end());
  std::ranges::sort(names);
  if (std::ranges::adjacent_find(names) != names.end() || names[0].empty()) {
    return Senseless("their names");
  }
  for (const std::string& line : Lines(text(kShapes))) {
    const auto shape = ShapeOf(line);
    if (!shape) return Senseless("their shapes");
    const auto blocks = BlocksOf(*shape, sparse.block);
    if (!blocks.ok()) return Senseless(blocks.status().message().c_str());
    facts.shapes.push_back(*shape);
  }
  if (facts.shapes.size() != sparse.weights.size()) {
    return Senseless("the number of their shapes");
  }
  return facts;
}

void EraseSparseFacts(std::map<std::string, std::string>* metadata) {
  for (const char* key :
       {kNonzero, kBlockOutputs, kBlockInputs, kIndex, kWeights, kShapes}) {
    metadata->erase(key);
  }
}

}  // namespace thimble::train
