// SPDX-License-Identifier: Apache-2.0
//
// A model's weights on disk: DIR/weights.safetensors, with parameters and
// running statistics under their names, and what is needed to build the model
// again as metadata.
#pragma once

#include <string>

#include "base/files.h"
#include "thimble/data.h"
#include "thimble/model.h"
#include "thimble/session.h"
#include "thimble/status.h"

namespace thimble::train {

std::string WeightsPath(const std::string& dir);

// Makes `dir` if need be, and fails early where it cannot be written, or where
// another run writes into it: hold what is given until this one ends. Removes
// what killed runs have left half written.
Result<FileDescriptor> PrepareOutDir(const std::string& dir);

// Fails where a run has left weights or a checkpoint in `dir`.
Status CheckHoldsNoRun(const std::string& dir);

// Fails where the log at `log_path` would be a file that is written to `dir`,
// or a temporary one on the way there: each would destroy the other.
// REQUIRES: `dir` is there.
Status CheckIsNoOutFile(const std::string& dir, const std::string& log_path);

// What the network was trained for.
struct WeightsInfo {
  std::string model;
  ImageSpec images{};
  std::vector<float> mean, stddev;
  double dropout = 0;  // in training; evaluation has none
};

// Temporary file, fsync, rename: the old file stays until the new one is whole.
Status SaveWeights(const std::string& dir, Session& session,
                   const WeightsInfo& info, int64_t steps);

Result<WeightsInfo> ReadWeightsInfo(const std::string& dir);

// Every parameter and statistic of the session's plan must be in the file with
// its shape. A checksum in the metadata must fit; files without one are taken
// as they are.
Status LoadWeights(const std::string& dir, Session& session);

// Over parameters and running statistics, in the plan's order.
std::string WeightsSha256(Session& session);

}  // namespace thimble::train
