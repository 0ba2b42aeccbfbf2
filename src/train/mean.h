// SPDX-License-Identifier: Apache-2.0
//
// WeightsMean: the arithmetic mean of several files of weights of one model,
// computed in f32 and rounded once to the type that they have. Sparse weights
// come as dense tensors: what one file does not keep another may. Of the
// tensors, a row of each file is in memory at a time. One thread at a time.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "store/safetensors.h"
#include "thimble/session.h"
#include "thimble/status.h"
#include "train/stored_pool.h"

namespace thimble::train {

class WeightsMean {
 public:
  // Files that Train wrote, at least one, all of the same model. Their seals
  // must fit.
  static Result<WeightsMean> Open(const std::vector<std::string>& paths);

  size_t files() const { return files_.size(); }
  // Tensors that there are.
  size_t size() const { return contents_.size(); }
  TensorInfo info(size_t i) const;
  // How many of them are sparse in the files.
  size_t members() const;
  // Those of the last file, without seal, checksum and what is sparse.
  const SafetensorsMetadata& metadata() const { return metadata_; }
  // Hands on all bytes of tensor i, piece by piece.
  Status Stream(size_t i, ByteSink sink) const;

 private:
  struct File {
    SafetensorsReader reader;
    std::optional<StoredPool> pool;
  };
  struct Content {
    TensorInfo info;
    std::optional<size_t> member;  // of the pools; none: a tensor
  };
  class Reader;

  WeightsMean() = default;
  Status Add(const std::string& path);

  std::deque<File> files_;  // pools know their readers
  std::vector<Content> contents_;
  SafetensorsMetadata metadata_;
};

// What the weights in `dir` are to be taken from, where the last `epochs` of
// those that the run has kept are meant. Fails where there are fewer.
Result<std::vector<std::string>> LastEpochs(const std::string& dir,
                                            int64_t epochs);

// Parameters and running statistics of the session, whose weights are dense.
Status LoadMean(const WeightsMean& mean, Session& session);

// The weights in `dir`, or, with `average` above 0, the mean of its last
// epochs.
Status LoadWeightsOrMean(const std::string& dir, int64_t average,
                         Session& session);

}  // namespace thimble::train
