// SPDX-License-Identifier: Apache-2.0
#include "kernels/pool/pool.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/cases.h"
#include "kernels/ours.h"
#include "onednn_peer.h"

namespace thimble::bench {
namespace {

using kernels::F32;
using kernels::KernelContext;
using kernels::PoolShape;

struct PoolSize {
  ImagesSize in;
  WindowSize window;
  int64_t outputs() const {
    return in.images * in.channels * window.Out(in.height) *
           window.Out(in.width);
  }
  PoolShape shape() const {
    return {.channels = in.channels,
            .height = in.height,
            .width = in.width,
            .kernel = window.kernel,
            .stride = window.stride,
            .padding = window.padding};
  }
};

void FillForward(OurSide& side, const PoolSize& s, PoolKind kind) {
  const float* x = side.Put(Values(s.in.elements(), 1));
  float* y = side.PutZeros(s.outputs());
  auto* winner = side.PutZeros<uint8_t>(s.outputs());
  side.Set(
      [=](const KernelContext& context) {
        switch (kind) {
          case PoolKind::kMax:
            return kernels::MaxPool(s.shape(), s.in.images, F32(x), F32(y),
                                    winner, context);
          case PoolKind::kAverage:
            return kernels::AveragePool(s.shape(), s.in.images, F32(x), F32(y),
                                        context);
          case PoolKind::kGlobal:
            return kernels::GlobalAveragePool(s.in.images, s.in.channels,
                                              s.in.height * s.in.width, F32(x),
                                              F32(y), context);
        }
      },
      y, s.outputs());
}

void FillBackward(OurSide& side, const PoolSize& s, PoolKind kind) {
  const float* grad_y = side.Put(Values(s.outputs(), 2));
  float* grad_x = side.PutZeros(s.in.elements());
  auto* winner = side.PutZeros<uint8_t>(s.outputs());
  if (kind == PoolKind::kMax) {  // backward reads who won
    const float* x = side.Put(Values(s.in.elements(), 1));
    float* y = side.PutZeros(s.outputs());
    side.Set(
        [=](const KernelContext& context) {
          kernels::MaxPool(s.shape(), s.in.images, F32(x), F32(y), winner,
                           context);
        },
        y, s.outputs());
    side.Run();
  }
  side.Set(
      [=](const KernelContext& context) {
        switch (kind) {
          case PoolKind::kMax:
            return kernels::MaxPoolGrad(s.shape(), s.in.images, winner,
                                        F32(grad_y), F32(grad_x), context);
          case PoolKind::kAverage:
            return kernels::AveragePoolGrad(s.shape(), s.in.images, F32(grad_y),
                                            F32(grad_x), context);
          case PoolKind::kGlobal:
            return kernels::GlobalAveragePoolGrad(
                s.in.images, s.in.channels, s.in.height * s.in.width,
                F32(grad_y), F32(grad_x), context);
        }
      },
      grad_x, s.in.elements());
}

Case PoolCase(const ShapeLine& line, const PoolSize& s, PoolKind kind,
              PassOf pass, ThreadPool* pool) {
  const bool forward = pass == PassOf::kForward;
  // For a maximum, a byte for each window says which value won.
  const auto x = static_cast<double>(4 * s.in.elements());
  const auto y =
      static_cast<double>((kind == PoolKind::kMax ? 5 : 4) * s.outputs());
  const char* name = kind == PoolKind::kMax       ? "max"
                     : kind == PoolKind::kAverage ? "average"
                                                  : "global";
  const auto& n = line.numbers;
  Case c{.family = "pool",
         .pass = fmt::format("{}-{}", name, forward ? "forward" : "backward"),
         .network = line.network,
         .shape = fmt::format("{}x{}x{}x{}", n[0], n[1], n[2], n[3]),
         .work = {.read = forward ? x : y,
                  .written = forward ? y : x,
                  .tensors = x + y},
         .sides = {Ours(pool, [=](OurSide& side) {
           (forward ? FillForward : FillBackward)(side, s, kind);
         })}};
  if (kind != PoolKind::kGlobal) {
    c.shape += fmt::format(",{}x{},s{}", n[4], n[4], n[5]);
  }
  for (const NamedLayout& named : kImageLayouts) {
    c.sides.push_back({named.side, [=, layout = named.layout] {
                         return OneDnnPool(s.in, s.window, kind, pass, layout);
                       }});
  }
  return c;
}

}  // namespace

std::vector<Case> PoolCases(ThreadPool* pool) {
  std::vector<Case> cases;
  for (const PoolKind kind : {PoolKind::kMax, PoolKind::kAverage}) {
    for (const PassOf pass : {PassOf::kForward, PassOf::kBackward}) {
      for (const ShapeLine& line : ReadShapes("pool", 7)) {
        const auto& n = line.numbers;
        const PoolSize s = {{n[0], n[1], n[2], n[3]}, {n[4], n[5], n[6]}};
        cases.push_back(PoolCase(line, s, kind, pass, pool));
      }
    }
  }
  for (const PassOf pass : {PassOf::kForward, PassOf::kBackward}) {
    for (const ShapeLine& line : ReadShapes("pool_global", 4)) {
      const auto& n = line.numbers;
      // For oneDNN, one window over a square plane.
      const PoolSize s = {{n[0], n[1], n[2], n[3]}, {n[2], n[2], 0}};
      cases.push_back(PoolCase(line, s, PoolKind::kGlobal, pass, pool));
    }
  }
  return cases;
}

}  // namespace thimble::bench
