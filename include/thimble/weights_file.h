// SPDX-License-Identifier: Apache-2.0
//
// What a file of weights holds, without building its model: the tensors, of
// sparse weights how much is kept, and the bytes of all of it; and the same
// weights as a file in which all are dense. Files may come from anywhere: what
// does not add up is an error with a reason. Functions are safe from every
// thread; the rest are plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "thimble/shape.h"
#include "thimble/sparsity.h"
#include "thimble/status.h"

namespace thimble {

// As it lies in the file.
struct StoredTensor {
  std::string name;
  std::string type;  // "F32", "F16", "BF16", "U8", …
  std::vector<uint64_t> shape;
  uint64_t bytes = 0;
};

// One of the weights whose kept values are in the tensor `sparse.weights`.
struct StoredSparseWeight {
  std::string name;
  Shape shape;
  int64_t blocks = 0;
  int64_t kept = 0;    // of them
  uint64_t bytes = 0;  // of the kept values
  uint64_t dense_bytes = 0;

  double density() const {
    return static_cast<double>(kept) / static_cast<double>(blocks);
  }
};

struct StoredSparseWeights {
  double nonzero = 1.0;  // as it was asked for
  WeightBlock block;
  IndexCodec index = IndexCodec::kPacked;
  std::string type;  // of values
  std::vector<StoredSparseWeight> weights;
  uint64_t index_bytes = 0;
  // Of all of them together.
  int64_t blocks = 0;
  int64_t kept = 0;
  uint64_t bytes = 0;
  uint64_t dense_bytes = 0;
};

struct WeightsFile {
  std::string path;
  // What the file says of itself. Empty where it says nothing, as those of
  // other programs.
  std::string format, model;
  std::optional<uint64_t> steps;
  bool sealed = false;  // has a checksum of all its bytes, which fits
  uint64_t file_bytes = 0;
  uint64_t tensor_bytes = 0;
  // In the order of their bytes. Sparse weights are not among them, but the
  // tensors that hold them.
  std::vector<StoredTensor> tensors;
  std::optional<StoredSparseWeights> sparse;
};

// Weights, a checkpoint, or any other safetensors file; of a folder, the
// weights that Train wrote to it.
Result<WeightsFile> InspectFile(const std::string& path);

// One JSON object with stable keys, which docs/reference/json.md lists.
std::string WeightsFileJson(const WeightsFile& file);

struct ExportOptions {
  // Replace the file where it is there already. Without it, that is refused.
  bool overwrite = false;
  // Above 0: the mean of the weights of the run's last so many epochs, of those
  // that it keeps (TrainOptions::keep_epochs), in place of the weights.
  int64_t average = 0;
};

struct ExportSummary {
  uint64_t tensor_bytes = 0;
  size_t made_dense = 0;  // weights
};

// Writes the weights at `from` (a file, or the folder that Train wrote to) to
// the file `to`, each as one tensor, in the type that it has; what is not kept
// is zero. Under the name weights.safetensors, Evaluate takes it. Whatever
// happens, `to` holds either its old contents or all of the new ones. No tensor
// is ever held as a whole.
Result<ExportSummary> ExportDense(const std::string& from,
                                  const std::string& to,
                                  const ExportOptions& options = {});

}  // namespace thimble
