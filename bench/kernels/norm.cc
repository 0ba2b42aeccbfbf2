// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/cases.h"
#include "onednn_peer.h"

namespace thimble::bench {

std::vector<Case> NormCases(ThreadPool*) {
  std::vector<Case> cases;
  for (const PassOf pass : {PassOf::kForward, PassOf::kBackward}) {
    const bool forward = pass == PassOf::kForward;
    for (const ShapeLine& line : ReadShapes("norm", 4)) {
      const auto& n = line.numbers;
      const ImagesSize size = {n[0], n[1], n[2], n[3]};
      const auto bytes = static_cast<double>(4 * size.elements());
      // The sums over all of it must be known before the first result: every
      // tensor that is read is read twice.
      Case c{.name = fmt::format("norm {} {} {}x{}x{}x{}",
                                 forward ? "forward" : "backward", line.network,
                                 n[0], n[1], n[2], n[3]),
             .work = {.read = (forward ? 2 : 4) * bytes,
                      .written = bytes,
                      .tensors = (forward ? 2 : 3) * bytes}};
      for (const NamedLayout& named : kImageLayouts) {
        const ImageLayout layout = named.layout;
        c.sides.push_back({named.side, [size, pass, layout] {
                             return OneDnnBatchNorm(size, pass, layout);
                           }});
      }
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

}  // namespace thimble::bench
