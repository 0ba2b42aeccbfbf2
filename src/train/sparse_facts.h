// SPDX-License-Identifier: Apache-2.0
//
// What a file tells of its sparse weights, as metadata: all that is needed to
// plan the same pools again, and to read the file without a plan. Pure
// functions.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "thimble/plan.h"
#include "thimble/shape.h"
#include "thimble/sparse_weights.h"
#include "thimble/status.h"

namespace thimble::train {

struct SparseFacts {
  SparseWeights sparse;
  std::vector<Shape> shapes;  // of sparse.weights
};

// Nothing where all weights are dense.
std::map<std::string, std::string> SparseFactsOf(const Plan& plan);

// Dense, where the metadata tells nothing of it. Fails where it makes no sense.
// All keys begin with `prefix`.
Result<SparseFacts> ReadSparseFacts(
    const std::map<std::string, std::string>& metadata,
    std::string_view prefix = "");

// Removes what SparseFactsOf gave.
void EraseSparseFacts(std::map<std::string, std::string>* metadata);

}  // namespace thimble::train
