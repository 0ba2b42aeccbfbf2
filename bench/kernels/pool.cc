// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kernels/cases.h"
#include "onednn_peer.h"

namespace thimble::bench {

std::vector<Case> PoolCases(ThreadPool*) {
  std::vector<Case> cases;
  for (const PassOf pass : {PassOf::kForward, PassOf::kBackward}) {
    const bool forward = pass == PassOf::kForward;
    for (const ShapeLine& line : ReadShapes("pool", 7)) {
      const auto& n = line.numbers;
      const ImagesSize size = {n[0], n[1], n[2], n[3]};
      const WindowSize window = {n[4], n[5], n[6]};
      const auto in = static_cast<double>(size.elements());
      const auto out = static_cast<double>(n[0] * n[1] * window.Out(n[2]) *
                                           window.Out(n[3]));
      // A byte for each window says which value won.
      const double x = 4 * in;
      const double y = (4 + 1) * out;
      Case c{.name = fmt::format("pool max-{} {} {}x{}x{}x{} {}x{} s{}",
                                 forward ? "forward" : "backward", line.network,
                                 n[0], n[1], n[2], n[3], n[4], n[4], n[5]),
             .work = {.read = forward ? x : y,
                      .written = forward ? y : x,
                      .tensors = x + y}};
      for (const NamedLayout& named : kImageLayouts) {
        const ImageLayout layout = named.layout;
        c.sides.push_back({named.side, [size, window, pass, layout] {
                             return OneDnnMaxPool(size, window, pass, layout);
                           }});
      }
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

}  // namespace thimble::bench
