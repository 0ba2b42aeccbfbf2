// SPDX-License-Identifier: Apache-2.0
//
// Test only: the gradient of a convolution's input through the norm before it,
// in one pass or in two, which must give the same bits.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/conv/conv.h"
#include "kernels/conv/test_fused.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels::testing {

// Where the second pass writes.
enum class Over { kNothing, kX, kResidual };

// The input's gradient through the norm, in one pass or in two.
struct NormGradResult {
  std::vector<uint8_t> grad_x;
  std::vector<float> gamma, beta;
  bool operator==(const NormGradResult&) const = default;
};

class NormGradCase {
 public:
  NormGradCase(const FusedCase& c, const FusedGradForm& form,
               const ConstTensor& w)
      : c_(c),
        form_(form),
        grad_y_(form.grad_y, OutputSize(c), 1),
        w_(w),
        x_(form.x, InputSize(c), 3),
        residual_(form.grad_x, InputSize(c), 9),
        x_bytes_(x_.Bytes()),
        residual_bytes_(residual_.Bytes()),
        scale_(Randoms(c.shape.in_channels, 4, 0.5f, 1.5f)),
        shift_(Randoms(c.shape.in_channels, 5, -0.5f, 0.5f)),
        mean_(Randoms(c.shape.in_channels, 6, -0.5f, 0.5f)),
        inv_std_(Randoms(c.shape.in_channels, 7, 0.5f, 2.0f)),
        gamma_(Randoms(c.shape.in_channels, 8, 0.5f, 1.5f)) {}

  NormGradResult InOnePass(bool with_residual) {
    const Conv2dShape& s = c_.shape;
    const TestContext context(1,
                              Conv2dGradInputWorkspace(s, {true, c_.images}));
    Restore();
    StoredTensor grad(form_.grad_x, InputSize(c_));
    NormGradResult result = Sums(grad.tensor(), *context);
    BatchNormGradRest(
        {.channels = s.in_channels, .pixels = s.in_height * s.in_width},
        c_.images, grad.tensor(), x_.tensor(), SumsOf(result),
        with_residual ? residual_.tensor() : Tensor::None(), grad.tensor(),
        *context);
    result.grad_x = grad.Bytes();
    return result;
  }

  NormGradResult InTwoPasses(bool with_residual, Over over) {
    const Conv2dShape& s = c_.shape;
    const TestContext first(3, Conv2dGradInputWorkspace(s, {true, c_.images}));
    const TestContext second(3, Conv2dGradInputWorkspace(s));
    Restore();
    StoredTensor apart(form_.grad_x, InputSize(c_));
    NormGradResult result = Sums({nullptr, form_.grad_x}, *first);
    StoredTensor& to = over == Over::kX          ? x_
                       : over == Over::kResidual ? residual_
                                                 : apart;
    Conv2dNormGrad(
        s, c_.images, grad_y_.tensor(), w_,
        {.to = to.tensor(),
         .x = x_.tensor(),
         .scale = scale_.data(),
         .shift = shift_.data(),
         .sums = SumsOf(result),
         .residual = with_residual ? residual_.tensor() : Tensor::None()},
        *second);
    result.grad_x = to.Bytes();
    return result;
  }

 private:
  // What a run may have written over.
  void Restore() {
    std::memcpy(x_.data(), x_bytes_.data(), x_bytes_.size());
    std::memcpy(residual_.data(), residual_bytes_.data(),
                residual_bytes_.size());
  }

  NormGradResult Sums(const Tensor& to, const KernelContext& context) {
    NormGradResult result{{}, mean_, mean_};
    Conv2dGradInput(c_.shape, c_.images, grad_y_.tensor(), w_,
                    {.to = to,
                     .x = x_.tensor(),
                     .scale = scale_.data(),
                     .shift = shift_.data(),
                     .mean = mean_.data(),
                     .inv_std = inv_std_.data(),
                     .grad_gamma = result.gamma.data(),
                     .grad_beta = result.beta.data()},
                    context);
    return result;
  }

  BatchNormGradSums SumsOf(const NormGradResult& result) const {
    return {.gamma = gamma_.data(),
            .mean = mean_.data(),
            .inv_std = inv_std_.data(),
            .grad_gamma = result.gamma.data(),
            .grad_beta = result.beta.data()};
  }

  const FusedCase& c_;
  const FusedGradForm& form_;
  StoredTensor grad_y_;
  const ConstTensor w_;
  StoredTensor x_, residual_;
  std::vector<uint8_t> x_bytes_, residual_bytes_;
  std::vector<float> scale_, shift_, mean_, inv_std_, gamma_;
};

}  // namespace thimble::kernels::testing
