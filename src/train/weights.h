// SPDX-License-Identifier: Apache-2.0
//
// A model's weights on disk: DIR/weights.safetensors, with parameters and
// running statistics under their names, and what is needed to build the model
// again as metadata.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "thimble/data.h"
#include "thimble/model.h"
#include "thimble/session.h"
#include "thimble/status.h"

namespace thimble::train {

// What the network was trained for.
struct WeightsInfo {
  std::string model;
  ImageSpec images{};
  std::vector<float> mean, stddev;
  // Evaluation depends on them too: what fuses stands in the network's graph.
  BuildOptions build_options{};
  Precision precision{};
};

using WeightsFacts = std::map<std::string, std::string>;

// What ReadWeightsInfo reads of the images that a network was trained on.
WeightsFacts ImageFacts(const ImageSpec& images, std::span<const float> mean,
                        std::span<const float> stddev);

// With the facts as metadata besides. The old file stays until the new one is
// whole.
Status SaveWeights(const FileDescriptor& folder, Session& session,
                   const WeightsFacts& facts, int64_t steps);

Result<WeightsInfo> ReadWeightsInfo(const std::string& dir);

// Every parameter and statistic of the session's plan must be in the file with
// its shape. Checksums that it carries must fit; files without any, of other
// programs, are taken as they are.
Status LoadWeights(const std::string& dir, Session& session);

// Over parameters and running statistics, in the plan's order.
std::string WeightsSha256(Session& session);

}  // namespace thimble::train
