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
    kept_.push_back(layout_.Of(index_.data(), m, first).kept);
    first += kept_.back();
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
  TH_ASSIGN_OR_RETURN(DenseRows rows, DenseRows::Of(*this, m));
  for (;;) {
    TH_ASSIGN_OR_RETURN(const auto bytes, rows.Next());
    if (bytes.empty()) return Status::Ok();
    TH_RETURN_IF_ERROR(sink(bytes));
  }
}

Result<DenseRows> DenseRows::Of(const StoredPool& pool, size_t m) {
  DenseRows made(pool, pool.facts().shapes[m]);
  const PoolLayout& layout = pool.layout();
  made.index_ = std::make_unique<Index>();
  Index& index = *made.index_;
  index.pattern = {.matrix = layout.matrix(m),
                   .block = layout.block(),
                   .codec = layout.codec(),
                   .column_bits = layout.column_bits(),
                   .kept = pool.kept_[m]};
  index.counts.resize(static_cast<size_t>(index.pattern.matrix.rows));
  const uint64_t begin = pool.index().begin;
  const FileDescriptor& file = pool.reader_->file();
  TH_RETURN_IF_ERROR(
      ReadFullyAt(file, std::as_writable_bytes(std::span(index.counts)),
                  begin + layout.CountsOffset(m)));
  uint64_t from = begin + layout.BitsOffset(m);
  auto bytes = static_cast<uint64_t>(index.pattern.matrix.rows *
                                     index.pattern.matrix.row_bytes());
  if (layout.codec() == IndexCodec::kPacked) {
    // Eight columns begin with a byte. A reader loads eight bytes at a time,
    // which are there.
    const int64_t skipped = pool.first_[m] / 8 * 8;
    index.pattern.first = pool.first_[m] - skipped;
    const auto bits = static_cast<uint64_t>(layout.column_bits());
    from += static_cast<uint64_t>(skipped) / 8 * bits;
    const auto columns =
        static_cast<uint64_t>(index.pattern.first + index.pattern.kept);
    bytes = columns * bits / 8 + 8;
  }
  index.bits.resize(bytes);
  TH_RETURN_IF_ERROR(
      ReadFullyAt(file, std::as_writable_bytes(std::span(index.bits)), from));
  index.pattern.counts = index.counts.data();
  index.pattern.bits = index.bits.data();
  index.reader.emplace(index.pattern);
  made.first_ = static_cast<uint64_t>(pool.first_[m]);
  made.columns_.resize(static_cast<size_t>(index.pattern.matrix.columns));
  const WeightBlock& block = layout.block();
  made.dense_.resize(
      static_cast<size_t>(block.outputs * made.shape_.elements_from(1)) *
      pool.value_bytes());
  return made;
}

Result<std::span<const std::byte>> DenseRows::Next() {
  PatternReader& reader = *index_->reader;
  if (reader.row() == index_->pattern.matrix.rows) {
    return std::span<const std::byte>();
  }
  const WeightBlock& block = index_->pattern.block;
  const auto taps = static_cast<size_t>(shape_.elements_from(2));
  const auto of_output = static_cast<size_t>(shape_.elements_from(1));
  const auto outputs = static_cast<size_t>(block.outputs);
  const auto inputs = static_cast<size_t>(block.inputs);
  const auto size = static_cast<size_t>(pool_->value_bytes());
  const uint64_t first = first_ + static_cast<uint64_t>(reader.first());
  const auto count = static_cast<size_t>(reader.count());
  reader.Read(columns_.data());
  kept_.resize(count * outputs * inputs * size);
  TH_RETURN_IF_ERROR(
      ReadFullyAt(pool_->reader_->file(), kept_,
                  pool_->values().begin + first * outputs * inputs * size));
  std::ranges::fill(dense_, std::byte{0});
  const std::byte* from = kept_.data();
  for (size_t i = 0; i < count; ++i) {
    const size_t input = columns_[i] / taps * inputs;
    const size_t tap = columns_[i] % taps;
    for (size_t o = 0; o < outputs; ++o) {
      for (size_t in = input; in < input + inputs; ++in, from += size) {
        std::memcpy(&dense_[(o * of_output + in * taps + tap) * size], from,
                    size);
      }
    }
  }
  return std::span<const std::byte>(dense_);
}

}  // namespace thimble::train
