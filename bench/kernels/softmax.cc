// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/cases.h"
#include "onednn_peer.h"

namespace thimble::bench {

std::vector<Case> SoftmaxCases(ThreadPool*) {
  std::vector<Case> cases;
  for (const ShapeLine& line : ReadShapes("softmax", 2)) {
    const int64_t rows = line.numbers[0];
    const int64_t classes = line.numbers[1];
    const auto bytes = static_cast<double>(4 * rows * classes);
    cases.push_back(
        {.name = fmt::format("softmax forward {} {}x{}", line.network, rows,
                             classes),
         .work = {.read = bytes, .written = bytes, .tensors = 2 * bytes},
         .sides = {{"oneDNN", [rows, classes] {
                      return OneDnnSoftmax(rows, classes);
                    }}}});
  }
  return cases;
}

}  // namespace thimble::bench
