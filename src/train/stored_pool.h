// SPDX-License-Identifier: Apache-2.0
//
// StoredPool: the sparse weights of a file, read without a plan. Nothing that
// the file says is trusted before it is checked. Immutable once read; a pool
// may be read from many threads.
#pragma once

#include <cstddef>
#include <optional>
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
  // Hands on all bytes of it, rows of blocks at a time.
  Status StreamDense(size_t m, ByteSink sink) const;

 private:
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
  std::vector<int64_t>
      first_;  // of the pool's blocks: the first of each weight
};

}  // namespace thimble::train
