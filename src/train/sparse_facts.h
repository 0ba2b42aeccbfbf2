// SPDX-License-Identifier: Apache-2.0
//
// What a file tells of its sparse weights, as metadata: all that is needed to
// plan the same pools again. Pure functions.
#pragma once

#include <map>
#include <string>

#include "thimble/plan.h"
#include "thimble/sparse_weights.h"
#include "thimble/status.h"

namespace thimble::train {

// Nothing where all weights are dense.
std::map<std::string, std::string> SparseFactsOf(const Plan& plan);

// Dense, where the metadata tells nothing of it. Fails where it makes no sense.
Result<SparseWeights> ReadSparseFacts(
    const std::map<std::string, std::string>& metadata);

}  // namespace thimble::train
