// SPDX-License-Identifier: Apache-2.0
//
// linear: x [N, I], w [O, I] -> y [N, O] = x wᵀ, f32; a bias is an op of its
// own. Backward reads x (for dW) and w (for dX); the output is not needed.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"
#include "kernels/matmul/matmul.h"
#include "ops/storage.h"

namespace thimble::ops {

// The product that weights [O, I] make.
inline kernels::LinearShape LinearShapeOf(const ValueSpec& w) {
  return {.in = w.shape[1], .out = w.shape[0], .blocks = BlocksOf(w.storage)};
}

// How a product's inputs, in the order of its kernel's, and its result lie.
inline kernels::LinearStorage LinearStorageOf(const ValueSpec& a,
                                              const ValueSpec& b,
                                              const ValueSpec& to) {
  return {a.storage.dtype, b.storage.dtype, to.storage.dtype};
}

class Linear final : public OpDef {
 public:
  enum Input : uint32_t { kX, kW };

  // `stays_f32`: what it gives is f32 whatever activations are stored as.
  explicit Linear(bool stays_f32 = false) : stays_f32_(stays_f32) {}

  std::string_view name() const override { return "linear"; }
  std::string Attributes() const override {
    // Files name models by this: plain ones say nothing.
    return stays_f32_ ? ListAttributes("stays f32", stays_f32_) : "";
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  ForwardResult Forward(ForwardContext& context) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  BackwardNeeds Needs() const override { return {.inputs = 0b11}; }
  uint32_t TakesSparse() const override { return 1u << kW; }
  void Gradient(GradientContext& context) const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

 private:
  bool stays_f32_;
};

// grad_y [N, O], w [O, I][, another gradient of x] -> grad_x [N, I], the sum of
// both. In place on the other one.
class LinearGradInput final : public OpDef {
 public:
  enum Input : uint32_t { kGradY, kW, kOther };

  explicit LinearGradInput(bool with_other = false) : with_other_(with_other) {}

  std::string_view name() const override { return "linear-grad-input"; }
  std::string Attributes() const override {
    return ListAttributes("with another gradient", with_other_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  std::vector<InPlacePair> InPlace() const override {
    if (!with_other_) return {};
    return {{kOther, 0}};
  }
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

  bool with_other() const { return with_other_; }

 private:
  bool with_other_;
};

// x [N, I], grad_y [N, O] -> grad_w [O, I]
class LinearGradWeight final : public OpDef {
 public:
  enum Input : uint32_t { kX, kGradY };

  // `w`: how the weight is stored; its gradient is as sparse.
  explicit LinearGradWeight(const Storage& w = DType::kF32) : w_(w) {}

  std::string_view name() const override { return "linear-grad-weight"; }
  std::string Attributes() const override { return ListAttributes("w", w_); }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  uint32_t Accumulates() const override { return 0b1; }
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  Workspace Scratch(std::span<const ValueSpec> inputs,
                    std::span<const ValueSpec> outputs) const override;

 private:
  Storage w_;
};

}  // namespace thimble::ops
