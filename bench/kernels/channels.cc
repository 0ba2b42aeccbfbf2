// SPDX-License-Identifier: Apache-2.0
//
// Elementwise kernels with a number for each channel. oneDNN has no primitive
// that does the same: they are held against the bound alone.
#include <fmt/format.h>

#include "kernels/cases.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/reference.h"
#include "kernels/ours.h"

namespace thimble::bench {
namespace {

using kernels::F32;
using kernels::KernelContext;

struct PlanesSize {
  int64_t images, channels, pixels;
  int64_t elements() const { return images * channels * pixels; }
};

PlanesSize PlanesOf(const ShapeLine& line) {
  return {line.numbers[0], line.numbers[1], line.numbers[2]};
}

Case Named(const ShapeLine& line, const char* pass) {
  const PlanesSize s = PlanesOf(line);
  return {.family = "elementwise",
          .pass = pass,
          .network = line.network,
          .shape = fmt::format("{}x{}x{}", s.images, s.channels, s.pixels),
          .work = {},
          .sides = {}};
}

Case BiasCase(const ShapeLine& line, ThreadPool* pool) {
  const PlanesSize s = PlanesOf(line);
  const auto bytes = static_cast<double>(4 * s.elements());
  Case c = Named(line, "bias");
  c.work = {.read = bytes, .written = bytes, .tensors = 2 * bytes};
  c.sides = {Ours(pool, [s](OurSide& side) {
    const float* x = side.Put(Values(s.elements(), 1));
    const float* bias = side.Put(Values(s.channels, 2));
    float* y = side.PutZeros(s.elements());
    side.Set(
        [=](const KernelContext& context) {
          kernels::BiasAdd(s.images, s.channels, s.pixels, F32(x), F32(bias),
                           F32(y), context);
        },
        y, s.elements());
  })};
  c.definition = [s] {
    const std::vector<float> x = Values(s.elements(), 1);
    std::vector<float> y(x.size());
    kernels::reference::BiasAdd(s.images, s.channels, s.pixels, x.data(),
                                Values(s.channels, 2).data(), y.data());
    return y;
  };
  return c;
}

Case BiasGradCase(const ShapeLine& line, ThreadPool* pool) {
  const PlanesSize s = PlanesOf(line);
  const auto bytes = static_cast<double>(4 * s.elements());
  Case c = Named(line, "bias-grad");
  c.work = {.read = bytes,
            .written = static_cast<double>(4 * s.channels),
            .tensors = bytes};
  c.sides = {Ours(pool, [s](OurSide& side) {
    const float* grad_y = side.Put(Values(s.elements(), 1));
    float* grad_bias = side.PutZeros(s.channels);
    side.Set(
        [=](const KernelContext& context) {
          kernels::BiasGrad(s.images, s.channels, s.pixels, F32(grad_y),
                            kernels::ConstTensor::None(), F32(grad_bias),
                            context);
        },
        grad_bias, s.channels);
  })};
  c.definition = [s] {
    std::vector<double> sums(static_cast<size_t>(s.channels));
    kernels::reference::BiasGrad(s.images, s.channels, s.pixels,
                                 WideValues(s.elements(), 1).data(),
                                 sums.data());
    return Rounded(sums);
  };
  return c;
}

std::vector<uint8_t> Pixels(const PlanesSize& s) {
  std::vector<uint8_t> bytes;
  bytes.reserve(static_cast<size_t>(s.elements()));
  for (const float value : Values(s.elements(), 1)) {
    bytes.push_back(static_cast<uint8_t>(value * 128.0f + 128.0f));
  }
  return bytes;
}

Case NormalizeCase(const ShapeLine& line, ThreadPool* pool) {
  const PlanesSize s = PlanesOf(line);
  const auto elements = static_cast<double>(s.elements());
  Case c = Named(line, "normalize-u8");
  c.work = {.read = elements, .written = 4 * elements, .tensors = 5 * elements};
  c.sides = {Ours(pool, [s](OurSide& side) {
    const uint8_t* x = side.Put(Pixels(s));
    const float* scale = side.Put(Values(s.channels, 2));
    const float* shift = side.Put(Values(s.channels, 3));
    float* y = side.PutZeros(s.elements());
    side.Set(
        [=](const KernelContext& context) {
          kernels::NormalizeU8(s.images, s.channels, s.pixels, x, scale, shift,
                               F32(y), context);
        },
        y, s.elements());
  })};
  c.definition = [s] {
    std::vector<float> y(static_cast<size_t>(s.elements()));
    kernels::reference::NormalizeU8(
        s.images, s.channels, s.pixels, Pixels(s).data(),
        Values(s.channels, 2).data(), Values(s.channels, 3).data(), y.data());
    return y;
  };
  return c;
}

}  // namespace

std::vector<Case> ChannelCases(ThreadPool* pool) {
  std::vector<Case> cases;
  const auto add = [&](const char* shapes, const auto& make) {
    for (const ShapeLine& line : ReadShapes(shapes, 3)) {
      cases.push_back(make(line, pool));
    }
  };
  add("bias", BiasCase);
  add("bias", BiasGradCase);
  add("normalize", NormalizeCase);
  return cases;
}

}  // namespace thimble::bench
