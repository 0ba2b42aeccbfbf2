// SPDX-License-Identifier: Apache-2.0
//
// Shortcuts only move values, and write zeros: they are held against the bound
// alone.
#include "kernels/shortcut/shortcut.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cases.h"
#include "kernels/ours.h"
#include "kernels/shortcut/reference.h"

namespace thimble::bench {
namespace {

using kernels::F32;
using kernels::KernelContext;
using kernels::ShortcutShape;

int64_t InputSize(const ShortcutShape& s) {
  return s.in_channels * s.height * s.width;
}
int64_t OutputSize(const ShortcutShape& s) {
  return s.out_channels * s.out_height() * s.out_width();
}

void FillShortcut(OurSide& side, const ShortcutShape& s, int64_t images,
                  bool forward) {
  const int64_t in = images * (forward ? InputSize(s) : OutputSize(s));
  const int64_t out = images * (forward ? OutputSize(s) : InputSize(s));
  const float* from = side.Put(Values(in, 1));
  float* to = side.PutZeros(out);
  side.Set(
      [=](const KernelContext& context) {
        (forward ? kernels::Shortcut : kernels::ShortcutGrad)(
            s, images, F32(from), F32(to), context);
      },
      to, out);
}

std::vector<float> DefineShortcut(const ShortcutShape& s, int64_t images,
                                  bool forward) {
  const int64_t in = images * (forward ? InputSize(s) : OutputSize(s));
  const int64_t out = images * (forward ? OutputSize(s) : InputSize(s));
  std::vector<float> to(static_cast<size_t>(out));
  (forward ? kernels::reference::Shortcut<float>
           : kernels::reference::ShortcutGrad<float>)(s, images,
                                                      Values(in, 1).data(),
                                                      to.data());
  return to;
}

}  // namespace

std::vector<Case> ShortcutCases(ThreadPool* pool) {
  std::vector<Case> cases;
  for (const bool forward : {true, false}) {
    for (const ShapeLine& line : ReadShapes("shortcut", 6)) {
      const auto& n = line.numbers;
      const ShortcutShape s = {.in_channels = n[1],
                               .height = n[2],
                               .width = n[3],
                               .out_channels = n[4],
                               .stride = n[5]};
      const int64_t images = n[0];
      // All of x: between the rows that are sampled lie one or two cache lines
      // each, which memory gives as well.
      const int64_t shared = std::min(s.in_channels, s.out_channels);
      const auto x =
          static_cast<double>(4 * images * shared * s.height * s.width);
      const auto y =
          static_cast<double>(4 * images * (forward ? s.out_channels : shared) *
                              s.out_height() * s.out_width());
      cases.push_back(
          {.family = "shortcut",
           .pass = forward ? "forward" : "backward",
           .network = line.network,
           .shape = fmt::format("{}x{}x{}x{}->{},s{}", n[0], n[1], n[2], n[3],
                                n[4], n[5]),
           .work = {.read = forward ? x : y,
                    .written = forward ? y : x,
                    .tensors = x + y},
           .sides = {Ours(
               pool,
               [=](OurSide& side) { FillShortcut(side, s, images, forward); })},
           .definition = [=] { return DefineShortcut(s, images, forward); }});
    }
  }
  return cases;
}

}  // namespace thimble::bench
