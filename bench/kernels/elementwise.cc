// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/cases.h"
#include "onednn_peer.h"

namespace thimble::bench {

std::vector<Case> ElementwiseCases(ThreadPool*) {
  struct Op {
    Elementwise what;
    const char* name;
    int tensors_read;
  };
  const Op ops[] = {{Elementwise::kRelu, "relu", 1},
                    {Elementwise::kReluGrad, "relu-grad", 2},
                    {Elementwise::kAdd, "add", 2}};
  std::vector<Case> cases;
  for (const Op& op : ops) {
    for (const ShapeLine& line : ReadShapes("elementwise", 1)) {
      const int64_t n = line.numbers[0];
      const auto bytes = static_cast<double>(4 * n);
      const Elementwise what = op.what;
      cases.push_back({.name = fmt::format("elementwise {} {} {}", op.name,
                                           line.network, n),
                       .work = {.flops = static_cast<double>(n),
                                .read = op.tensors_read * bytes,
                                .written = bytes,
                                .tensors = (op.tensors_read + 1) * bytes},
                       .sides = {{"oneDNN", [what, n] {
                                    return OneDnnElementwise(what, n);
                                  }}}});
    }
  }
  return cases;
}

}  // namespace thimble::bench
