// SPDX-License-Identifier: Apache-2.0
#include "ops/batch_norm.h"

#include "kernels/norm/reference.h"
#include "oracle.h"

namespace thimble::testing {
namespace {

struct BatchNormEntry {
  using Def = ops::BatchNorm;

  // The batch's statistics take the places of the running ones, which training
  // does not read.
  template <typename T>
  static void Forward(const Def& def, const ForwardPass<T>& pass) {
    namespace ref = kernels::reference;
    const auto shape = ops::BatchNormShapeOf(pass.InSpec(Def::kX));
    const T* x = pass.In(Def::kX);
    T* mean = pass.in[Def::kRunningMean];
    T* variance = pass.in[Def::kRunningVariance];
    ref::BatchNormStatistics(shape, pass.rows(), x, mean, variance);
    pass.RoundInput(Def::kRunningMean);
    pass.RoundInput(Def::kRunningVariance);
    ref::BatchNormApply(shape, pass.rows(), def.attributes().epsilon, x,
                        pass.In(Def::kGamma), pass.In(Def::kBeta), mean,
                        variance, pass.out[0]);
  }

  static void Backward(const Def& def, BackwardPass& pass) {
    using Tensor = std::vector<double>;
    namespace ref = kernels::reference;
    const auto shape = ops::BatchNormShapeOf(pass.forward.InSpec(Def::kX));
    const double epsilon = def.attributes().epsilon;
    const double *x = pass.In(Def::kX), *scale = pass.In(Def::kGamma);
    const double* mean = pass.In(Def::kRunningMean);
    const double* variance = pass.In(Def::kRunningVariance);
    const double* g = pass.grad_out[0];
    Tensor gx(pass.grad_in[Def::kX]->size());
    Tensor gamma(pass.grad_in[Def::kGamma]->size()), beta(gamma.size());
    ref::BatchNormGrad(shape, pass.rows(), def.attributes().epsilon, x, scale,
                       mean, variance, g, gx.data(), gamma.data(), beta.data());
    // The same formula again with each term disturbed: terms can be much larger
    // than their sum.
    Factors& factors = pass.factors;
    Tensor sum_g(beta.size()), sum_gx(beta.size());
    const auto normal = [&](size_t c, int64_t at) {
      return (x[at] - mean[c]) / std::sqrt(variance[c] + epsilon);
    };
    ref::ForEachPixel(shape, pass.rows(), [&](int64_t channel, int64_t at) {
      const auto c = static_cast<size_t>(channel);
      sum_g[c] += g[at] * factors.Next();
      sum_gx[c] += g[at] * normal(c, at) * factors.Next();
    });
    const double count = static_cast<double>(pass.rows() * shape.pixels);
    ref::ForEachPixel(shape, pass.rows(), [&](int64_t channel, int64_t at) {
      const auto c = static_cast<size_t>(channel);
      gx[static_cast<size_t>(at)] =
          scale[c] / std::sqrt(variance[c] + epsilon) *
          (g[at] * factors.Next() - sum_g[c] / count * factors.Next() -
           normal(c, at) * sum_gx[c] / count * factors.Next());
    });
    const auto give = [&](size_t k, const Tensor& made) {
      pass.Give(k, [&](double* to) { std::ranges::copy(made, to); });
    };
    give(Def::kX, gx);
    give(Def::kGamma, gamma);
    give(Def::kBeta, beta);
  }

  static std::vector<Sample> Samples() {
    std::vector<Sample> samples;
    using Norm = ops::BatchNormAttributes;
    for (const Norm& norm :
         {Norm{}, Norm{.epsilon = 1e-2f}, Norm{.momentum = 0.3f}}) {
      const auto add = [norm](Network& net, ValueId x,
                              const std::string& name) {
        return net.BatchNorm(name, x, norm.epsilon, norm.momentum);
      };
      // One value per channel has no variance.
      const auto fits = [](const Shape& x) {
        return x[0] * x.elements_from(2) > 1;
      };
      const std::string what = Def(norm).Attributes();
      samples.push_back({what + " on images", On::kImages, add, fits});
      samples.push_back({what + " on rows", On::kRows, add, fits});
    }
    return samples;
  }
};

const Registration<BatchNormEntry> kBatchNormEntry;

}  // namespace
}  // namespace thimble::testing
