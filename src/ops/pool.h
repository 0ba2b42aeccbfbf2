// SPDX-License-Identifier: Apache-2.0
//
// max-pool, average-pool (square windows) and global-average-pool of f32 images
// [N, C, H, W]. Max: the training form writes each window's winner as one byte
// per output, all that backward needs. Averages need nothing.
#pragma once

#include "graph/attributes.h"
#include "graph/op.h"
#include "kernels/pool/pool.h"

namespace thimble::ops {

struct Window {
  int64_t kernel = 2;
  int64_t stride = 2;
  int64_t padding = 0;
};

class MaxPool final : public OpDef {
 public:
  // `with_winner`: the form that also writes the winners.
  explicit MaxPool(const Window& window, bool with_winner = false)
      : window_(window), with_winner_(with_winner) {}

  std::string_view name() const override { return "max-pool"; }
  std::string Attributes() const override {
    return ListAttributes("kernel", window_.kernel, "stride", window_.stride,
                          "padding", window_.padding, "with winner",
                          with_winner_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  ForwardResult Forward(ForwardContext& context) const override;
  BackwardNeeds Needs() const override { return {.saved = true}; }
  void Gradient(GradientContext& context) const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;

  const Window& window() const { return window_; }

 private:
  Window window_;
  bool with_winner_;
};

// winner, grad_y -> grad_x
class MaxPoolGrad final : public OpDef {
 public:
  enum Input : uint32_t { kWinner, kGradY };

  MaxPoolGrad(const Window& window, const ValueSpec& x)
      : window_(window), x_(x) {}

  std::string_view name() const override { return "max-pool-grad"; }
  std::string Attributes() const override {
    return ListAttributes("kernel", window_.kernel, "stride", window_.stride,
                          "padding", window_.padding, "x", x_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;

  const Window& window() const { return window_; }

 private:
  Window window_;
  ValueSpec x_;
};

class AveragePool final : public OpDef {
 public:
  explicit AveragePool(const Window& window) : window_(window) {}

  std::string_view name() const override { return "average-pool"; }
  std::string Attributes() const override {
    return ListAttributes("kernel", window_.kernel, "stride", window_.stride,
                          "padding", window_.padding);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  void Gradient(GradientContext& context) const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;

  const Window& window() const { return window_; }

 private:
  Window window_;
};

// grad_y -> grad_x
class AveragePoolGrad final : public OpDef {
 public:
  AveragePoolGrad(const Window& window, const ValueSpec& x)
      : window_(window), x_(x) {}

  std::string_view name() const override { return "average-pool-grad"; }
  std::string Attributes() const override {
    return ListAttributes("kernel", window_.kernel, "stride", window_.stride,
                          "padding", window_.padding, "x", x_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;

  const Window& window() const { return window_; }

 private:
  Window window_;
  ValueSpec x_;
};

class GlobalAveragePool final : public OpDef {
 public:
  std::string_view name() const override { return "global-average-pool"; }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  void Gradient(GradientContext& context) const override;
};

// grad_y [N, C] -> grad_x [N, C, H, W]
class GlobalAveragePoolGrad final : public OpDef {
 public:
  explicit GlobalAveragePoolGrad(const ValueSpec& x) : x_(x) {}

  std::string_view name() const override { return "global-average-pool-grad"; }
  std::string Attributes() const override { return ListAttributes("x", x_); }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;

 private:
  ValueSpec x_;
};

kernels::PoolShape PoolShapeOf(const ValueSpec& x, const Window& window);

}  // namespace thimble::ops
