// SPDX-License-Identifier: Apache-2.0
#include "ops/layer_norm.h"

#include "kernels/layer_norm/reference.h"
#include "oracle.h"

namespace thimble::testing {
namespace {

struct LayerNormEntry {
  using Def = ops::LayerNorm;

  template <typename T>
  static void Forward(const Def& def, const ForwardPass<T>& pass) {
    kernels::reference::LayerNorm(pass.rows(), pass.InShape(Def::kX)[1],
                                  static_cast<double>(def.epsilon()),
                                  pass.In(Def::kX), pass.In(Def::kGamma),
                                  pass.In(Def::kBeta), pass.out[0]);
  }

  static void Backward(const Def& def, BackwardPass& pass) {
    using Tensor = std::vector<double>;
    const auto features = static_cast<size_t>(pass.forward.InShape(Def::kX)[1]);
    const double *x = pass.In(Def::kX), *gamma = pass.In(Def::kGamma);
    const double* g = pass.grad_out[0];
    const auto n = static_cast<double>(features);
    Tensor gx(pass.grad_in[Def::kX]->size());
    Tensor grad_gamma(features), grad_beta(features);
    // The definition with each term disturbed: terms can be much larger than
    // their sum.
    Factors& factors = pass.factors;
    for (int64_t r = 0; r < pass.rows(); ++r, x += features, g += features) {
      double mean = 0, inv_std = 0, sum = 0, product = 0;
      kernels::reference::LayerNormMoments(static_cast<int64_t>(features),
                                           static_cast<double>(def.epsilon()),
                                           x, &mean, &inv_std);
      inv_std *= factors.Next();
      const auto normal = [&](size_t i) { return (x[i] - mean) * inv_std; };
      for (size_t i = 0; i < features; ++i) {
        grad_gamma[i] += g[i] * normal(i) * factors.Next();
        grad_beta[i] += g[i] * factors.Next();
        sum += g[i] * gamma[i] * factors.Next();
        product += g[i] * gamma[i] * normal(i) * factors.Next();
      }
      for (size_t i = 0; i < features; ++i) {
        gx[static_cast<size_t>(r) * features + i] =
            inv_std *
            (g[i] * gamma[i] * factors.Next() - sum / n * factors.Next() -
             normal(i) * product / n * factors.Next());
      }
    }
    const auto give = [&](size_t k, const Tensor& made) {
      pass.Give(k, [&](double* to) { std::ranges::copy(made, to); });
    };
    give(Def::kX, gx);
    give(Def::kGamma, grad_gamma);
    give(Def::kBeta, grad_beta);
  }

  static std::vector<Sample> Samples() {
    std::vector<Sample> samples;
    for (const float epsilon : {1e-5f, 0.5f}) {
      samples.push_back(
          {Def(epsilon).Attributes(), On::kRows,
           [epsilon](Network& net, ValueId x, const std::string& name) {
             return net.LayerNorm(name, x, epsilon);
           }});
    }
    return samples;
  }
};

const Registration<LayerNormEntry> kLayerNormEntry;

}  // namespace
}  // namespace thimble::testing
