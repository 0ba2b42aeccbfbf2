// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul/matmul.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/cases.h"
#include "kernels/ours.h"
#include "onednn_peer.h"

namespace thimble::bench {
namespace {

using kernels::F32;
using kernels::KernelContext;
using kernels::LinearShape;

Workspace WorkspaceOf(const LinearShape& shape, MatmulPass pass) {
  switch (pass) {
    case MatmulPass::kForward:
      return LinearForwardWorkspace(shape);
    case MatmulPass::kGradInput:
      return LinearGradInputWorkspace(shape);
    case MatmulPass::kGradWeight:
      return LinearGradWeightWorkspace(shape);
  }
  return {};
}

void FillMatmul(OurSide& side, const MatmulSize& s, MatmulPass pass) {
  const LinearShape shape = {.in = s.in, .out = s.out};
  const int64_t rows = s.rows;
  const auto x = [&] { return side.Put(Values(s.rows * s.in, 1)); };
  const auto w = [&] { return side.Put(Values(s.in * s.out, 2)); };
  const auto grad_y = [&] { return side.Put(Values(s.rows * s.out, 3)); };
  switch (pass) {
    case MatmulPass::kForward: {
      float* y = side.PutZeros(s.rows * s.out);
      side.Set(
          [=, a = x(), b = w()](const KernelContext& context) {
            LinearForward(shape, rows, F32(a), F32(b), {F32(y)}, context);
          },
          y, s.rows * s.out);
      return;
    }
    case MatmulPass::kGradInput: {
      float* grad_x = side.PutZeros(s.rows * s.in);
      side.Set(
          [=, a = grad_y(), b = w()](const KernelContext& context) {
            LinearGradInput(shape, rows, F32(a), F32(b), {F32(grad_x)},
                            context);
          },
          grad_x, s.rows * s.in);
      return;
    }
    case MatmulPass::kGradWeight: {
      float* grad_w = side.PutZeros(s.in * s.out);
      side.Set(
          [=, a = x(), b = grad_y()](const KernelContext& context) {
            LinearGradWeight(shape, rows, F32(a), F32(b), {F32(grad_w)},
                             context);
          },
          grad_w, s.in * s.out);
      return;
    }
  }
}

}  // namespace

std::vector<Case> MatmulCases(ThreadPool* pool) {
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
          {.family = "matmul",
           .pass = pass_name,
           .network = line.network,
           .shape = fmt::format("{}x{}->{}", s.rows, s.in, s.out),
           .work = {.flops = static_cast<double>(2 * s.rows * s.in * s.out),
                    .read = x + w + y - made,
                    .written = made,
                    .tensors = x + w + y},
           .sides = {
               Ours(
                   pool, [s, p](OurSide& side) { FillMatmul(side, s, p); },
                   WorkspaceOf({.in = s.in, .out = s.out}, p)),
               {"oneDNN", [s, p] { return OneDnnMatmul(s, p); }}}});
    }
  }
  return cases;
}

}  // namespace thimble::bench
