// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "kernels/cases.h"
#include "onednn_peer.h"

namespace thimble::bench {

std::vector<Case> MatmulCases(ThreadPool*) {
  const std::pair<MatmulPass, const char*> passes[] = {
      {MatmulPass::kForward, "forward"},
      {MatmulPass::kGradInput, "grad-input"},
      {MatmulPass::kGradWeight, "grad-weight"}};
  std::vector<Case> cases;
  for (const auto& [pass, pass_name] : passes) {
    for (const ShapeLine& line : ReadShapes("matmul", 3)) {
      const MatmulSize s = {line.numbers[0], line.numbers[1], line.numbers[2]};
      const auto x = static_cast<double>(4 * s.rows * s.in);
      const auto w = static_cast<double>(4 * s.in * s.out);
      const auto y = static_cast<double>(4 * s.rows * s.out);
      const double made = pass == MatmulPass::kForward     ? y
                          : pass == MatmulPass::kGradInput ? x
                                                           : w;
      const MatmulPass p = pass;
      cases.push_back(
          {.name = fmt::format("matmul {} {} {}x{}->{}", pass_name,
                               line.network, s.rows, s.in, s.out),
           .work = {.flops = static_cast<double>(2 * s.rows * s.in * s.out),
                    .read = x + w + y - made,
                    .written = made,
                    .tensors = x + w + y},
           .sides = {{"oneDNN", [s, p] { return OneDnnMatmul(s, p); }}}});
    }
  }
  return cases;
}

}  // namespace thimble::bench
