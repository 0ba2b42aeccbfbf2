// SPDX-License-Identifier: Apache-2.0
//
// Batch norm whole, beside oneDNN, and the parts of it that plans use beside
// fused convolutions, against the bound.
#include "kernels/norm/norm.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "kernels/cases.h"
#include "kernels/norm/reference.h"
#include "kernels/ours.h"
#include "onednn_peer.h"

namespace thimble::bench {
namespace {

using kernels::BatchNormShape;
using kernels::F32;
using kernels::KernelContext;
namespace reference = kernels::reference;

constexpr float kEpsilon = 1e-5f;

BatchNormShape ShapeOf(const ImagesSize& s) {
  return {.channels = s.channels, .pixels = s.height * s.width};
}

// gamma and beta as oneDNN gets them, and the statistics of x.
struct Parameters {
  explicit Parameters(const ImagesSize& s)
      : gamma(WideValues(2 * s.channels, 2)),
        mean(static_cast<size_t>(s.channels)),
        variance(mean.size()) {
    beta.assign(gamma.begin() + s.channels, gamma.end());
    gamma.resize(mean.size());
    reference::BatchNormStatistics(ShapeOf(s), s.images,
                                   WideValues(s.elements(), 1).data(),
                                   mean.data(), variance.data());
  }
  std::vector<double> gamma, beta, mean, variance;
};

void FillForward(OurSide& side, const ImagesSize& s) {
  const float* x = side.Put(Values(s.elements(), 1));
  const float* gamma = side.Put(Values(2 * s.channels, 2));
  float* y = side.PutZeros(s.elements());
  float* mean = side.PutZeros(s.channels);
  float* variance = side.PutZeros(s.channels);
  side.Set(
      [=](const KernelContext& context) {
        kernels::BatchNormTrain(ShapeOf(s), s.images, kEpsilon, F32(x), gamma,
                                gamma + s.channels, F32(y), mean, variance,
                                context);
      },
      y, s.elements());
}

void FillBackward(OurSide& side, const ImagesSize& s) {
  const Parameters p(s);
  const float* x = side.Put(Values(s.elements(), 1));
  const float* grad_y = side.Put(Values(s.elements(), 3));
  const float* gamma = side.Put(Rounded(p.gamma));
  const float* mean = side.Put(Rounded(p.mean));
  const float* variance = side.Put(Rounded(p.variance));
  float* grad_x = side.PutZeros(s.elements());
  float* grad_gamma = side.PutZeros(s.channels);
  float* grad_beta = side.PutZeros(s.channels);
  side.Set(
      [=](const KernelContext& context) {
        kernels::BatchNormGrad(ShapeOf(s), s.images, kEpsilon, F32(x), gamma,
                               mean, variance, F32(grad_y), F32(grad_x),
                               grad_gamma, grad_beta, context);
      },
      grad_x, s.elements());
}

void FillApply(OurSide& side, const ImagesSize& s) {
  const Parameters p(s);
  const float* x = side.Put(Values(s.elements(), 1));
  const float* gamma = side.Put(Rounded(p.gamma));
  const float* beta = side.Put(Rounded(p.beta));
  const float* mean = side.Put(Rounded(p.mean));
  const float* variance = side.Put(Rounded(p.variance));
  float* y = side.PutZeros(s.elements());
  side.Set(
      [=](const KernelContext& context) {
        kernels::BatchNormApply(ShapeOf(s), s.images, kEpsilon, F32(x), gamma,
                                beta, mean, variance, F32(y), context);
      },
      y, s.elements());
}

std::vector<float> DefineApply(const ImagesSize& s) {
  const Parameters p(s);
  std::vector<double> y(static_cast<size_t>(s.elements()));
  reference::BatchNormApply(ShapeOf(s), s.images, kEpsilon,
                            WideValues(s.elements(), 1).data(), p.gamma.data(),
                            p.beta.data(), p.mean.data(), p.variance.data(),
                            y.data());
  return Rounded(y);
}

void FillMoments(OurSide& side, const ImagesSize& s) {
  const float* x = side.Put(Values(s.elements(), 1));
  float* both = side.PutZeros(2 * s.channels);
  side.Set(
      [=](const KernelContext& context) {
        kernels::BatchNormMoments(ShapeOf(s), s.images, F32(x), both,
                                  both + s.channels, context);
      },
      both, 2 * s.channels);
}

std::vector<float> DefineMoments(const ImagesSize& s) {
  Parameters p(s);
  p.mean.insert(p.mean.end(), p.variance.begin(), p.variance.end());
  return Rounded(p.mean);
}

// With sums that are no sums of these tensors, which the kernel cannot know:
// grad_gamma as gamma, grad_beta as beta.
void FillRest(OurSide& side, const ImagesSize& s) {
  const Parameters p(s);
  const float* d = side.Put(Values(s.elements(), 3));
  const float* x = side.Put(Values(s.elements(), 1));
  const float* gamma = side.Put(Rounded(p.gamma));
  const float* beta = side.Put(Rounded(p.beta));
  const float* mean = side.Put(Rounded(p.mean));
  const float* inv_std =
      side.Put(std::vector<float>(static_cast<size_t>(s.channels), 2.0f));
  float* grad_x = side.PutZeros(s.elements());
  side.Set(
      [=](const KernelContext& context) {
        kernels::BatchNormGradRest(ShapeOf(s), s.images, F32(d), F32(x),
                                   {.gamma = gamma,
                                    .mean = mean,
                                    .inv_std = inv_std,
                                    .grad_gamma = gamma,
                                    .grad_beta = beta},
                                   kernels::ConstTensor::None(), F32(grad_x),
                                   context);
      },
      grad_x, s.elements());
}

std::vector<float> DefineRest(const ImagesSize& s) {
  const Parameters p(s);
  const auto count = static_cast<double>(s.images * s.height * s.width);
  const std::vector<float> x = Values(s.elements(), 1);
  std::vector<float> grad_x = Values(s.elements(), 3);
  reference::ForEachPixel(
      ShapeOf(s), s.images, [&](int64_t channel, int64_t at) {
        const auto c = static_cast<size_t>(channel);
        const auto i = static_cast<size_t>(at);
        const double normal = (x[i] - p.mean[c]) * 2.0;
        const double inner =
            grad_x[i] - p.beta[c] / count - normal * p.gamma[c] / count;
        grad_x[i] = static_cast<float>(p.gamma[c] * 2.0 * inner);
      });
  return grad_x;
}

// One pass: how often each element is read, and whether oneDNN has it. The sums
// over a whole tensor must be known before the first result that needs them:
// what is read for them is read twice. Moments need the mean of a piece of a
// plane before its squares, by contract: it is read again while it is in the
// first cache.
struct NormPass {
  const char* name;
  double read, again, written, tensors;  // in sizes of x
  void (*fill)(OurSide&, const ImagesSize&);
  std::optional<PassOf> peer;
  std::vector<float> (*definition)(const ImagesSize&);
};
constexpr NormPass kNormPasses[] = {
    {"forward", 2, 1, 1, 2, FillForward, PassOf::kForward, nullptr},
    {"backward", 4, 0, 1, 3, FillBackward, PassOf::kBackward, nullptr},
    {"apply", 1, 0, 1, 2, FillApply, {}, DefineApply},
    {"moments", 1, 1, 0, 1, FillMoments, {}, DefineMoments},
    {"rest", 2, 0, 1, 3, FillRest, {}, DefineRest}};

}  // namespace

std::vector<Case> NormCases(ThreadPool* pool) {
  std::vector<Case> cases;
  for (const NormPass& pass : kNormPasses) {
    for (const ShapeLine& line : ReadShapes("norm", 4)) {
      const auto& n = line.numbers;
      const ImagesSize s = {n[0], n[1], n[2], n[3]};
      const auto bytes = static_cast<double>(4 * s.elements());
      Case c{.family = "norm",
             .pass = pass.name,
             .network = line.network,
             .shape = fmt::format("{}x{}x{}x{}", n[0], n[1], n[2], n[3]),
             .work = {.read = pass.read * bytes,
                      .again = pass.again * bytes,
                      .written = pass.written * bytes,
                      .tensors = pass.tensors * bytes},
             .sides = {Ours(pool, [s, fill = pass.fill](OurSide& side) {
               fill(side, s);
             })}};
      if (pass.definition != nullptr) {
        c.definition = [s, define = pass.definition] { return define(s); };
      }
      for (const NamedLayout& named : kImageLayouts) {
        if (!pass.peer) break;
        c.sides.push_back({named.side, [s, p = *pass.peer, named] {
                             return OneDnnBatchNorm(s, p, named.layout);
                           }});
      }
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

}  // namespace thimble::bench
