// SPDX-License-Identifier: Apache-2.0
#include "train/stored_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/files.h"

namespace thimble::train {
namespace {

using Tensor = SafetensorsReader::Tensor;

constexpr const char* kIndexName = "sparse.index";
constexpr const char* kValuesName = "sparse.weights";

// Of networks of a billion weights, an index takes an eighth of this.
constexpr uint64_t kMaxIndexBytes = uint64_t{1} << 30;

// No name may stand for two things once all weights are tensors.
Status CheckFreeNames(const SafetensorsReader& reader,
                      const SparseFacts& facts) {
  std::vector<std::string_view> names;
  for (const Tensor& tensor : reader.tensors()) {
    names.emplace_back(tensor.info.name);
  }
  std::ranges::sort(names);
  for (const std::string& name : facts.sparse.weights) {
    if (name == "__metadata__" || std::ranges::binary_search(names, name)) {
      return Status::Failed(fmt::format(
          "'{}' is the name of a sparse weight and of something else", name));
    }
  }
  return Status::Ok();
}

uint64_t BytesOfValue(const std::string& type) {
  if (type == "F32") return 4;
  return type == "F16" || type == "BF16" ? 2 : 0;
}

// Where every weight's rows have their counts in so many bytes of index, whose
// number bounds all that is computed of them.
Result<std::vector<BlockMatrix>> MatricesOf(const SparseFacts& facts,
                                            uint64_t index_bytes) {
  if (index_bytes > kMaxIndexBytes) {
    return Status::Failed(
        fmt::format("the index has {} bytes; at most {} are "
                    "read",
                    index_bytes, kMaxIndexBytes));
  }
  std::vector<BlockMatrix> matrices;
  uint64_t rows = 0;
  for (const Shape& shape : facts.shapes) {
    TH_ASSIGN_OR_RETURN(const BlockMatrix matrix,
                        BlocksOf(shape, facts.sparse.block));
    rows += static_cast<uint64_t>(matrix.rows);
    if (2 * rows > index_bytes) {
      return Status::Failed(
          fmt::format("the index has {} bytes, too few for the rows of the "
                      "sparse weights",
                      index_bytes));
    }
    matrices.push_back(matrix);
  }
  return matrices;
}

// How many blocks the file keeps, which its facts must agree with.
Result<int64_t> KeptIn(const SparseFacts& facts,
                       const std::vector<BlockMatrix>& matrices,
                       uint64_t values) {
  int64_t expected = 0;
  for (const BlockMatrix& matrix : matrices) {
    expected += KeptOf(facts.sparse.nonzero, matrix);
  }
  const auto in_block = static_cast<uint64_t>(facts.sparse.block.values());
  if (values == static_cast<uint64_t>(expected) * in_block) return expected;
  return Status::Failed(fmt::format(
      "'{}' has {} values; by their shapes and the share of {}, the sparse "
      "weights have {} blocks of {}",
      kValuesName, values, facts.sparse.nonzero, expected, in_block));
}

}  // namespace

Result<std::optional<StoredPool>> StoredPool::Read(
    const SafetensorsReader& reader, std::string_view prefix) {
  TH_ASSIGN_OR_RETURN(SparseFacts facts,
                      ReadSparseFacts(reader.metadata(), prefix));
  const Tensor* index = reader.Find(kIndexName);
  const Tensor* values = reader.Find(kValuesName);
  if (facts.sparse.is_dense()) {
    if (index == nullptr && values == nullptr) {
      return std::optional<StoredPool>();
    }
    return Status::Failed(
        fmt::format("it has the tensor '{}', but does not say which weights "
                    "are sparse",
                    index != nullptr ? kIndexName : kValuesName));
  }
  if (index == nullptr || index->info.dtype != "U8" || values == nullptr ||
      BytesOfValue(values->info.dtype) == 0 || values->info.shape.size() != 1) {
    return Status::Failed(
        fmt::format("it has sparse weights, but not '{}' as bytes and '{}' as "
                    "a row of F32, F16 or BF16",
                    kIndexName, kValuesName));
  }
  TH_RETURN_IF_ERROR(CheckFreeNames(reader, facts));
  TH_ASSIGN_OR_RETURN(std::vector<BlockMatrix> matrices,
                      MatricesOf(facts, index->bytes));
  TH_ASSIGN_OR_RETURN(const int64_t kept,
                      KeptIn(facts, matrices, values->info.shape[0]));
  PoolLayout layout(std::move(matrices), facts.sparse.block, kept,
                    *facts.sparse.index);
  StoredPool pool(reader, std::move(facts), std::move(layout));
  pool.index_tensor_ = index;
  pool.values_ = values;
  pool.value_bytes_ = BytesOfValue(values->info.dtype);
  TH_RETURN_IF_ERROR(pool.ReadIndex());
  return std::optional<StoredPool>(std::move(pool));
}

Status StoredPool::ReadIndex() {
  if (index_tensor_->bytes != layout_.index_bytes()) {
    return Status::Failed(
        fmt::format("the index has {} bytes; by the shapes of the sparse "
                    "weights it takes {}",
                    index_tensor_->bytes, layout_.index_bytes()));
  }
  index_.resize(layout_.index_bytes());
  TH_RETURN_IF_ERROR(
      ReadFullyAt(reader_->file(), index_, index_tensor_->begin));
  TH_RETURN_IF_ERROR(CheckIndex(layout_, index_));
  int64_t first = 0;
  for (size_t m = 0; m < layout_.size(); ++m) {
    first_.push_back(first);
    first += layout_.Of(index_.data(), m, first).kept;
  }
  return Status::Ok();
}

TensorInfo StoredPool::DenseInfo(size_t m) const {
  TensorInfo info{facts_.sparse.weights[m], values_->info.dtype, {}};
  const Shape& shape = facts_.shapes[m];
  for (size_t axis = 0; axis < shape.rank(); ++axis) {
    info.shape.push_back(static_cast<uint64_t>(shape[axis]));
  }
  return info;
}

Status StoredPool::StreamDense(size_t m, ByteSink sink) const {
  const Pattern pattern = Of(m);
  const WeightBlock& block = pattern.block;
  const Shape& shape = facts_.shapes[m];
  const auto taps = static_cast<size_t>(shape.elements_from(2));
  const auto of_output = static_cast<size_t>(shape.elements_from(1));
  const auto outputs = static_cast<size_t>(block.outputs);
  const auto inputs = static_cast<size_t>(block.inputs);
  const auto size = static_cast<size_t>(value_bytes_);
  std::vector<std::byte> dense(outputs * of_output * size);
  std::vector<std::byte> kept;
  std::vector<uint16_t> columns(static_cast<size_t>(pattern.matrix.columns));
  PatternReader reader(pattern);
  while (reader.row() < pattern.matrix.rows) {
    const auto first = static_cast<uint64_t>(pattern.first + reader.first());
    const auto count = static_cast<size_t>(reader.count());
    reader.Read(columns.data());
    kept.resize(count * outputs * inputs * size);
    TH_RETURN_IF_ERROR(
        ReadFullyAt(reader_->file(), kept,
                    values_->begin + first * outputs * inputs * size));
    std::ranges::fill(dense, std::byte{0});
    const std::byte* from = kept.data();
    for (size_t i = 0; i < count; ++i) {
      const size_t input = columns[i] / taps * inputs;
      const size_t tap = columns[i] % taps;
      for (size_t o = 0; o < outputs; ++o) {
        for (size_t in = input; in < input + inputs; ++in, from += size) {
          std::memcpy(&dense[(o * of_output + in * taps + tap) * size], from,
                      size);
        }
      }
    }
    TH_RETURN_IF_ERROR(sink(dense));
  }
  return Status::Ok();
}

}  // namespace thimble::train
