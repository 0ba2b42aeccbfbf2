// SPDX-License-Identifier: Apache-2.0
//
// oneDNN's primitives, of f32 tensors where nothing else is said, as sides of
// bench_kernels: made and filled before the clock starts. Each throws
// dnnl::error, a std::exception, where oneDNN has no such primitive. Where a
// layout can be chosen it is a peer's own matter: all are timed, and the
// fastest one counts.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cases.h"
#include "thimble/dtype.h"

namespace thimble::bench {

// x [rows, in], w [out, in], y [rows, out].
struct MatmulSize {
  int64_t rows, in, out;
};
enum class MatmulPass { kForward, kGradInput, kGradWeight };

struct ImagesSize {
  int64_t images, channels, height, width;
  int64_t elements() const { return images * channels * height * width; }
};

struct WindowSize {
  int64_t kernel, stride, padding;
  int64_t Out(int64_t in) const {
    return (in + 2 * padding - kernel) / stride + 1;
  }
};

// All that oneDNN has fast kernels for, on one SIMD target or another.
enum class ImageLayout { kPlanar, kChannelsLast, kBlocked8, kBlocked16 };
struct NamedLayout {
  ImageLayout layout;
  const char* side;
};
inline constexpr NamedLayout kImageLayouts[] = {
    {ImageLayout::kPlanar, "oneDNN nchw"},
    {ImageLayout::kChannelsLast, "oneDNN nhwc"},
    {ImageLayout::kBlocked8, "oneDNN nChw8c"},
    {ImageLayout::kBlocked16, "oneDNN nChw16c"}};

enum class Elementwise { kRelu, kReluGrad, kAdd };
enum class PassOf { kForward, kBackward };

// Of f32 or bf16.
std::unique_ptr<Side> OneDnnMatmul(const MatmulSize& size, MatmulPass pass,
                                   DType dtype);
std::unique_ptr<Side> OneDnnElementwise(Elementwise what, int64_t elements);
// Over the rows' classes.
std::unique_ptr<Side> OneDnnSoftmax(int64_t rows, int64_t classes);
// With scale and shift; forward also gives mean and variance.
std::unique_ptr<Side> OneDnnBatchNorm(const ImagesSize& size, PassOf pass,
                                      ImageLayout layout);
// As in training: forward of a maximum also notes which value won. An average
// is over the window with its padding; a global one has a window over all.
enum class PoolKind { kMax, kAverage, kGlobal };
std::unique_ptr<Side> OneDnnPool(const ImagesSize& size,
                                 const WindowSize& window, PoolKind kind,
                                 PassOf pass, ImageLayout layout);

}  // namespace thimble::bench
