// SPDX-License-Identifier: Apache-2.0
//
// StoredPool: the sparse weights of a file, read without a plan. Nothing that
// the file says is trusted before it is checked. Immutable once read; a pool
// may be read from many threads.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "store/safetensors.h"
#include "thimble/sparsity.h"
#include "thimble/status.h"
#include "train/sparse_facts.h"

namespace thimble::train {

class StoredPool {
 public:
  // None where the file has no sparse weights. Keys of its metadata begin with
  // `prefix`. An error says what is wrong, without naming the file. The reader
  // must outlive the pool.
  static Result<std::optional<StoredPool>> Read(const SafetensorsReader& reader,
                                                std::string_view prefix);

  const SparseFacts& facts() const { return facts_; }
  const PoolLayout& layout() const { return layout_; }
  // Of weight m, one of facts().
  Pattern Of(size_t m) const { return layout_.Of(index_.data(), m, first_[m]); }
  const SafetensorsReader::Tensor& index() const { return *index_tensor_; }
  const SafetensorsReader::Tensor& values() const { return *values_; }
  uint64_t value_bytes() const { return value_bytes_; }  // of one
  // Weight m as a dense tensor.
  TensorInfo DenseInfo(size_t m) const;
  // Without the index, which takes memory by the weights: all but Of goes on.
  void DropIndex() { index_ = {}; }
  // Hands on all bytes of it, rows of blocks at a time.
  Status StreamDense(size_t m, ByteSink sink) const;

 private:
  friend class DenseRows;

  StoredPool(const SafetensorsReader& reader, SparseFacts facts,
             PoolLayout layout)
      : reader_(&reader),
        facts_(std::move(facts)),
        layout_(std::move(layout)) {}
  Status ReadIndex();

  const SafetensorsReader* reader_;
  SparseFacts facts_;
  PoolLayout layout_;
  const SafetensorsReader::Tensor* index_tensor_ = nullptr;
  const SafetensorsReader::Tensor* values_ = nullptr;
  uint64_t value_bytes_ = 0;
  std::vector<std::byte> index_;
  // Of the pool's blocks: the first of each weight, and how many it has.
  std::vector<int64_t> first_, kept_;
};

// The rows of a stored weight as a dense tensor, one after the other, of whose
// index no more is held than the weight's. Reads one file; one thread.
class DenseRows {
 public:
  // Weight m of the pool, which must outlive the rows.
  static Result<DenseRows> Of(const StoredPool& pool, size_t m);

  // The bytes of the next row of blocks, until the next call; none at the end.
  Result<std::span<const std::byte>> Next();

 private:
  // Stays where it is: the reader knows the pattern.
  struct Index {
    Pattern pattern;
    std::vector<uint16_t> counts;
    std::vector<uint8_t> bits;
    std::optional<PatternReader> reader;
  };

  DenseRows(const StoredPool& pool, const Shape& shape)
      : pool_(&pool), shape_(shape) {}

  const StoredPool* pool_;
  Shape shape_;
  std::unique_ptr<Index> index_;
  uint64_t first_ = 0;  // of the pool's blocks
  std::vector<uint16_t> columns_;
  std::vector<std::byte> kept_, dense_;
};

}  // namespace thimble::train
