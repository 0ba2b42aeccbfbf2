// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/cases.h"

namespace thimble::bench {

// SGD with momentum reads weights, gradients and velocities and writes weights
// and velocities. oneDNN has nothing like it: the bound alone is there.
std::vector<Case> UpdateCases(ThreadPool*) {
  std::vector<Case> cases;
  for (const ShapeLine& line : ReadShapes("update", 1)) {
    const auto bytes = static_cast<double>(4 * line.numbers[0]);
    cases.push_back(
        {.name = fmt::format("update sgd {} {}", line.network, line.numbers[0]),
         .work = {.read = 3 * bytes,
                  .written = 2 * bytes,
                  .tensors = 3 * bytes},
         .sides = {}});
  }
  return cases;
}

}  // namespace thimble::bench
