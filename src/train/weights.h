// SPDX-License-Identifier: Apache-2.0
//
// A model's weights on disk: DIR/weights.safetensors, with parameters and
// running statistics under their names, and what is needed to build the model
// again as metadata.
#pragma once

#include <map>
#include <string>

#include "base/files.h"
#include "thimble/model.h"
#include "thimble/session.h"
#include "thimble/sparse_weights.h"
#include "thimble/status.h"
#include "train/out_folder.h"

namespace thimble::train {

// Metadata: the value of "format" in what SaveWeights writes, and the key of
// WeightsSha256 of the tensors.
inline constexpr char kWeightsFormat[] = "thimble-weights-1";
inline constexpr char kWeightsChecksum[] = "sha256";

// Metadata: what a source of batches says of its data.
using WeightsFacts = std::map<std::string, std::string>;

// What the network was trained for.
struct WeightsInfo {
  std::string model;
  // Evaluation depends on them too: what fuses stands in the network's graph.
  BuildOptions build_options{};
  Precision precision{};
  SparseWeights sparse{};
  WeightsFacts facts{};  // those of the source of batches, and all others
};

// With the facts as metadata besides. The old file stays until the new one is
// whole.
Status SaveWeights(const FileDescriptor& folder, Session& session,
                   const WeightsFacts& facts, int64_t steps,
                   const std::string& file_name = kWeightsName);

Result<WeightsInfo> ReadWeightsInfo(const std::string& dir);

// Every parameter and statistic of the session's plan must be in the file with
// its shape. Checksums that it carries must fit; files without any, of other
// programs, are taken as they are.
Status LoadWeights(const std::string& dir, Session& session);

// Over parameters and running statistics, in the plan's order.
std::string WeightsSha256(Session& session);

}  // namespace thimble::train
