// SPDX-License-Identifier: Apache-2.0
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/conv/conv.cc"
#include "kernels/conv/conv.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/conv/grad_weight-inl.h"
#include "kernels/conv/grouped_run-inl.h"
#include "kernels/conv/pass.h"
#include "kernels/conv/row_weight-inl.h"
#include "kernels/conv/taps-inl.h"
#include "kernels/conv/weight_pass.h"
#include "kernels/conv/winograd_run-inl.h"
#include "kernels/conv/winograd_weight_grad-inl.h"
#include "kernels/dot/direct.h"
#include "kernels/dot/direct_weight.h"
#include "kernels/dot/dot_form.h"
#include "kernels/dot/sparse.h"
#include "kernels/dot/sparse_weight.h"
#include "kernels/dot/winograd.h"
#include "kernels/sparse/sparse_conv.h"
#include "kernels/target.h"

#if HWY_ONCE
namespace thimble::kernels {
namespace {

// A thread's part is the largest of the ways', since targets differ in which
// they have. Sparse weights have ways of their own.
int64_t PassFloats(const Conv2dShape& shape, bool forward) {
  if (shape.blocks) return sparse::SumFloats(shape, forward);
  int64_t floats =
      (forward ? conv::ForwardPass(shape) : conv::GradInputPass(shape))
          .Floats();
  conv::GroupedPass grouped;
  if (conv::MakeGroupedPass(shape, forward, grouped)) {
    floats = std::max(floats, grouped.Floats());
  }
  conv::WinogradPass winograd;
  if (conv::MakeWinogradPass(shape, forward, winograd)) {
    floats = std::max(floats, winograd.Floats());
  }
  return floats;
}

// Sums over images are kept in the shared part.
Workspace PassWorkspace(const Conv2dShape& shape, bool forward,
                        const Conv2dReduction& reduction) {
  const auto floats = static_cast<size_t>(PassFloats(shape, forward));
  Workspace workspace{.per_thread = std::max(floats * sizeof(float),
                                             dot::SparseBytes(shape, forward))};
  if (reduction.reducing) {
    const int64_t pixels = forward ? shape.out_height() * shape.out_width()
                                   : shape.in_height * shape.in_width;
    const int64_t outputs = forward ? shape.out_channels : shape.in_channels;
    const int64_t chunks =
        conv::CeilDiv(reduction.images, conv::ChunkImages(pixels));
    workspace.shared =
        static_cast<size_t>(chunks * outputs) * 2 * sizeof(float);
  }
  return workspace;
}

void CheckResidual(const conv::Sink& sink) {
  TH_CHECK(!sink.residual.is_there() ||
           sink.residual.dtype() == sink.to.dtype());
}

// By dot products, if they are on and the shape and types have a way.
bool RunDots(const Conv2dShape& shape, bool forward, int64_t images,
             const Conv2dInput& input, const ConstTensor& weights,
             const conv::Sink& sink, const KernelContext& context) {
  if (ActiveDotForm() == DotForm::kNone) return false;
  const dot::RowWriter write = THIMBLE_DISPATCH(WriteRow).Get();
  if (weights.is_sparse()) {
    return dot::RunSparse(shape, forward, images, input, weights, sink, write,
                          context);
  }
  const size_t bytes = PassWorkspace(shape, forward, {}).per_thread;
  return dot::RunWinograd(shape, forward, bytes, images, input, weights, sink,
                          write, context) ||
         dot::RunDirect(shape, forward, bytes, images, input, weights, sink,
                        write, context);
}

bool RunWeightDots(const Conv2dShape& shape, int64_t images,
                   const Conv2dInput& x, const ConstTensor& grad_y,
                   const Conv2dGradWeightTarget& grad_w,
                   const KernelContext& context) {
  if (ActiveDotForm() == DotForm::kNone) return false;
  if (grad_w.pattern != nullptr) {
    return dot::RunSparseWeight(shape, images, x, grad_y, grad_w, context);
  }
  return dot::RunWinogradWeightGrad(shape, images, x, grad_y, grad_w,
                                    THIMBLE_DISPATCH(StoreWeights).Get(),
                                    context) ||
         dot::RunDirectWeight(shape, images, x, grad_y, grad_w, context);
}

void RunPass(const Conv2dShape& shape, bool forward, int64_t images,
             const Conv2dInput& input, const ConstTensor& weights,
             const conv::Sink& sink, const KernelContext& context) {
  TH_CHECK(weights.is_sparse() == shape.blocks.has_value());
  if (RunDots(shape, forward, images, input, weights, sink, context)) {
    return;
  }
  if (weights.is_sparse()) {
    sparse::RunSum(shape, forward, images, input, weights, sink, context);
    return;
  }
  conv::WinogradPass winograd;
  if (conv::MakeWinogradPass(shape, forward, winograd) &&
      THIMBLE_DISPATCH(RunWinograd)
          .Get()(winograd, images, input, weights, sink, context)) {
    return;
  }
  conv::GroupedPass grouped;
  if (conv::MakeGroupedPass(shape, forward, grouped) &&
      THIMBLE_DISPATCH(RunGrouped)
          .Get()(grouped, images, input, weights, sink, context)) {
    return;
  }
  const conv::Pass pass =
      forward ? conv::ForwardPass(shape) : conv::GradInputPass(shape);
  THIMBLE_DISPATCH(RunTaps).Get()(pass, images, input, weights, sink, context);
}

// Stored and in pieces.
Workspace SparseWeightWorkspace(const Conv2dShape& shape) {
  const auto floats = static_cast<size_t>(sparse::WeightFloats(shape));
  return {.per_thread =
              std::max(floats * sizeof(float), dot::SparseWeightBytes(shape))};
}

}  // namespace

Workspace Conv2dForwardWorkspace(const Conv2dShape& shape,
                                 const Conv2dReduction& reduction) {
  return PassWorkspace(shape, true, reduction);
}

void Conv2dForward(const Conv2dShape& shape, int64_t images,
                   const Conv2dInput& x, const ConstTensor& w,
                   const Conv2dOutput& y, const KernelContext& context) {
  conv::Sink sink{.to = y.to, .residual = y.residual};
  CheckResidual(sink);
  sink.moments = y.mean != nullptr;
  sink.partials = context.Shared<float>();
  RunPass(shape, true, images, x, w, sink, context);
  if (!sink.moments) return;
  const int64_t pixels = shape.out_height() * shape.out_width();
  const int64_t chunk = conv::ChunkImages(pixels);
  for (int64_t c = 0; c < shape.out_channels; ++c) {
    conv::Partial all;
    for (int64_t i = 0; i * chunk < images; ++i) {
      const float* part = sink.partials + 2 * (i * shape.out_channels + c);
      all.Merge(
          static_cast<double>(std::min(chunk, images - i * chunk) * pixels),
          part[0], part[1]);
    }
    y.mean[c] = static_cast<float>(all.first);
    y.variance[c] = static_cast<float>(all.second / all.count);
  }
}

Workspace Conv2dGradInputWorkspace(const Conv2dShape& shape,
                                   const Conv2dReduction& reduction) {
  return PassWorkspace(shape, false, reduction);
}

void Conv2dGradInput(const Conv2dShape& shape, int64_t images,
                     const ConstTensor& grad_y, const ConstTensor& w,
                     const Conv2dGradInputTarget& grad_x,
                     const KernelContext& context) {
  conv::Sink sink{.to = grad_x.to};
  sink.x = grad_x.x;
  sink.scale = grad_x.scale;
  sink.shift = grad_x.shift;
  sink.mean = grad_x.mean;
  sink.inv_std = grad_x.inv_std;
  sink.partials = context.Shared<float>();
  RunPass(shape, false, images, {.x = grad_y}, w, sink, context);
  if (!sink.reducing()) return;
  const int64_t chunk = conv::ChunkImages(shape.in_height * shape.in_width);
  for (int64_t c = 0; c < shape.in_channels; ++c) {
    double beta = 0.0, gamma = 0.0;
    for (int64_t i = 0; i * chunk < images; ++i) {
      const float* part = sink.partials + 2 * (i * shape.in_channels + c);
      beta += part[0];
      gamma += part[1];
    }
    grad_x.grad_beta[c] = static_cast<float>(beta);
    grad_x.grad_gamma[c] = static_cast<float>(gamma);
  }
}

void Conv2dNormGrad(const Conv2dShape& shape, int64_t images,
                    const ConstTensor& grad_y, const ConstTensor& w,
                    const Conv2dNormGradTarget& grad_x,
                    const KernelContext& context) {
  conv::Sink sink{.to = grad_x.to, .residual = grad_x.residual};
  CheckResidual(sink);
  sink.x = grad_x.x;
  sink.scale = grad_x.scale;
  sink.shift = grad_x.shift;
  sink.known_sums = &grad_x.sums;
  sink.count = static_cast<double>(images * shape.in_height * shape.in_width);
  RunPass(shape, false, images, {.x = grad_y}, w, sink, context);
}

Workspace Conv2dGradWeightWorkspace(const Conv2dShape& shape) {
  if (shape.blocks) return SparseWeightWorkspace(shape);
  conv::RowWeightPass rows;
  int64_t floats = conv::MakeRowWeightPass(shape, rows)
                       ? rows.Floats()
                       : conv::GradWeightPass(shape).Floats();
  conv::WinogradWeightPass winograd;
  if (conv::MakeWinogradWeightPass(shape, false, winograd)) {
    floats = std::max(floats, winograd.Floats());
  }
  return {.per_thread = static_cast<size_t>(floats) * sizeof(float)};
}

Workspace Conv2dGradPiecesWorkspace(const Conv2dShape& shape) {
  if (shape.blocks) return SparseWeightWorkspace(shape);
  conv::RowWeightPass rows;
  int64_t floats = conv::MakeRowWeightPass(shape, rows)
                       ? conv::InPieces(rows).Floats()
                       : conv::GradWeightPass(shape).Floats();
  conv::WinogradWeightPass winograd;
  if (conv::MakeWinogradWeightPass(shape, true, winograd)) {
    floats = std::max(floats, winograd.Floats());
  }
  floats += conv::WeightRegions(shape).Floats();
  return {.per_thread = static_cast<size_t>(floats) * sizeof(float)};
}

void Conv2dGradWeight(const Conv2dShape& shape, int64_t images,
                      const Conv2dInput& x, const ConstTensor& grad_y,
                      const Conv2dGradWeightTarget& grad_w,
                      const KernelContext& context) {
  TH_CHECK((grad_w.pattern != nullptr) == shape.blocks.has_value());
  if (RunWeightDots(shape, images, x, grad_y, grad_w, context)) return;
  if (grad_w.pattern != nullptr) {
    sparse::RunWeightGrad(shape, images, x, grad_y, grad_w, context);
    return;
  }
  const bool in_pieces = grad_w.pieces != nullptr;
  conv::WinogradWeightPass winograd;
  if (conv::MakeWinogradWeightPass(shape, in_pieces, winograd) &&
      THIMBLE_DISPATCH(RunWinogradWeightGrad)
          .Get()(winograd, images, x, grad_y, grad_w, context)) {
    return;
  }
  conv::RowWeightPass rows;
  if (conv::MakeRowWeightPass(shape, rows)) {
    if (in_pieces) rows = conv::InPieces(rows);
    THIMBLE_DISPATCH(RunRowWeight)
        .Get()(rows, images, x, grad_y, grad_w, context);
    return;
  }
  THIMBLE_DISPATCH(RunGradWeight)
      .Get()(conv::GradWeightPass(shape), images, x, grad_y, grad_w, context);
}

}  // namespace thimble::kernels
#endif  // HWY_ONCE
