// SPDX-License-Identifier: Apache-2.0
//
// batch-norm: x [N, C] or [N, C, H, W], gamma, beta, running mean and variance
// [C] -> y, f32, in place on x. Training normalises with the batch's statistics
// and keeps them for backward, which also reads x; the running ones follow in a
// shadow that the update phase commits. Evaluation uses the running ones.
//
// Statistics may be taken of groups of images, each normalised by its own: then
// they are [groups, C] instead of [C], and the running ones follow the groups
// one after the other.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"
#include "kernels/norm/norm.h"

namespace thimble::ops {

struct BatchNormAttributes {
  float epsilon = 1e-5f;
  float momentum = 0.1f;  // of the running statistics
};

// x, gamma, beta, running_mean, running_variance -> y
class BatchNorm final : public OpDef {
 public:
  enum Input : uint32_t { kX, kGamma, kBeta, kRunningMean, kRunningVariance };

  explicit BatchNorm(const BatchNormAttributes& attributes)
      : attributes_(attributes) {}

  std::string_view name() const override { return "batch-norm"; }
  std::string Attributes() const override {
    return ListAttributes("epsilon", attributes_.epsilon, "momentum",
                          attributes_.momentum);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  ForwardResult Forward(ForwardContext& context) const override;
  BackwardNeeds Needs() const override {
    return {.inputs = 0b11, .saved = true};
  }
  void Gradient(GradientContext& context) const override;

  const BatchNormAttributes& attributes() const { return attributes_; }

 private:
  BatchNormAttributes attributes_;
};

// x, gamma, beta -> y, mean, variance
class BatchNormTrain final : public OpDef {
 public:
  enum Input : uint32_t { kX, kGamma, kBeta };

  BatchNormTrain(float epsilon, int64_t groups)
      : epsilon_(epsilon), groups_(groups) {}

  std::string_view name() const override { return "batch-norm-train"; }
  std::string Attributes() const override {
    return ListAttributes("epsilon", epsilon_, "groups", groups_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  std::vector<InPlacePair> InPlace() const override { return {{kX, 0}}; }
  // Applies the saved statistics.
  RepeatForm Repeat() const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override {
    return 6 * OpDef::Flops(inputs, outputs);
  }

  float epsilon() const { return epsilon_; }

 private:
  float epsilon_;
  int64_t groups_;
};

// x, gamma, beta, mean, variance -> y
class BatchNormApply final : public OpDef {
 public:
  enum Input : uint32_t { kX, kGamma, kBeta, kMean, kVariance };

  explicit BatchNormApply(float epsilon) : epsilon_(epsilon) {}

  std::string_view name() const override { return "batch-norm-apply"; }
  std::string Attributes() const override {
    return ListAttributes("epsilon", epsilon_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  std::vector<InPlacePair> InPlace() const override { return {{kX, 0}}; }
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override {
    return 2 * OpDef::Flops(inputs, outputs);
  }

  float epsilon() const { return epsilon_; }

 private:
  float epsilon_;
};

// x, gamma, mean, variance, grad_y -> grad_gamma, grad_beta[, grad_x]
class BatchNormGrad final : public OpDef {
 public:
  enum Input : uint32_t { kX, kGamma, kMean, kVariance, kGradY };

  BatchNormGrad(float epsilon, bool with_grad_x)
      : epsilon_(epsilon), with_grad_x_(with_grad_x) {}

  std::string_view name() const override { return "batch-norm-grad"; }
  std::string Attributes() const override {
    return ListAttributes("epsilon", epsilon_, "with grad_x", with_grad_x_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  uint32_t Accumulates() const override { return 0b11; }
  std::vector<InPlacePair> InPlace() const override {
    if (!with_grad_x_) return {};
    return {{kGradY, 2}, {kX, 2}};
  }
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override {
    return 9 * OpDef::Flops(inputs, outputs);
  }

  float epsilon() const { return epsilon_; }

 private:
  float epsilon_;
  bool with_grad_x_;
};

// mean, variance, running_mean, running_variance -> next_mean, next_variance
class BatchNormTrack final : public OpDef {
 public:
  enum Input : uint32_t { kMean, kVariance, kRunningMean, kRunningVariance };

  // `positions` per image: pixels of a plane. The count of a group is what it
  // really held: positions times the images that the run has of `axis`.
  BatchNormTrack(float momentum, int64_t positions, int64_t group_images,
                 AxisId axis)
      : momentum_(momentum),
        positions_(positions),
        group_images_(group_images),
        axis_(axis) {}

  std::string_view name() const override { return "batch-norm-track"; }
  std::string Attributes() const override {
    return ListAttributes("momentum", momentum_, "positions", positions_,
                          "images of a group", group_images_, "axis", axis_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  uint32_t Accumulates() const override { return 0b11; }

  float momentum() const { return momentum_; }
  int64_t positions() const { return positions_; }
  int64_t group_images() const { return group_images_; }

 private:
  float momentum_;
  int64_t positions_;
  int64_t group_images_;
  AxisId axis_;
};

// Emits the running statistics' next values, for the update phase to commit.
void TrackMoments(ForwardContext& context, const BatchNormAttributes& norm,
                  ValueId x, ValuePair moments, ValuePair running);

kernels::BatchNormShape BatchNormShapeOf(const ValueSpec& x);

// [C] for one group, else [groups, C].
ValueSpec StatisticsSpec(int64_t channels, int64_t groups);
// Adds a mean and a variance to an op's outputs.
void AddStatistics(int64_t channels, int64_t groups,
                   std::vector<ValueSpec>& outputs);
// Of statistics as above.
int64_t GroupsOf(const ValueSpec& statistics);
// Images of a full group. REQUIRES: x has a capacity of whole groups.
int64_t GroupImages(const ValueSpec& x, const ValueSpec& statistics);

}  // namespace thimble::ops
