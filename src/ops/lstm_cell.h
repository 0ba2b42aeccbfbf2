// SPDX-License-Identifier: Apache-2.0
//
// lstm-cell: z [N, 4H] (lstm-gates) and, after a first step, the state c [N, H]
// of the step before -> h [N, H], c [N, H], f32:
//
//   i = sigmoid(z_i)   f = sigmoid(z_f + forget_offset)
//   g = tanh(z_g)      o = sigmoid(z_o)
//   c = f · c_before + i · g           h = o · tanh(c)
//
// In place: c on c_before. Backward reads c_before, and i, f, g and o, which
// training writes over z. It needs neither z nor h nor c: tanh(c) is made
// again.
#pragma once

#include <optional>

#include "graph/attributes.h"
#include "graph/op.h"

namespace thimble::ops {

// Mode-free, and the form that evaluates: z[, c_before] -> h, c
class LstmCell final : public OpDef {
 public:
  enum Input : uint32_t { kZ, kCBefore };

  LstmCell(bool recurrent, float forget_offset)
      : recurrent_(recurrent), forget_offset_(forget_offset) {}

  std::string_view name() const override { return "lstm-cell"; }
  std::string Attributes() const override {
    return ListAttributes("recurrent", recurrent_, "forget offset",
                          forget_offset_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  ForwardResult Forward(ForwardContext& context) const override;
  BackwardNeeds Needs() const override {
    return {.inputs = recurrent_ ? 0b10u : 0u, .saved = true};
  }
  void Gradient(GradientContext& context) const override;
  std::vector<InPlacePair> InPlace() const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;

  bool recurrent() const { return recurrent_; }
  float forget_offset() const { return forget_offset_; }

 private:
  bool recurrent_;
  float forget_offset_;
};

// z[, c_before] -> h, c, gates. In place: gates on z, c on c_before.
class LstmCellTrain final : public OpDef {
 public:
  explicit LstmCellTrain(std::shared_ptr<const LstmCell> cell)
      : cell_(std::move(cell)) {}

  std::string_view name() const override { return "lstm-cell-train"; }
  std::string Attributes() const override { return cell_->Attributes(); }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  std::vector<InPlacePair> InPlace() const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override {
    return cell_->Flops(inputs, outputs);
  }

  const LstmCell& cell() const { return *cell_; }

 private:
  std::shared_ptr<const LstmCell> cell_;
};

// gates[, grad_h][, grad_c][, c_before] -> grad_z[, grad_c_before]; at least
// one of the gradients is there, and grad_c_before where c_before is. In place:
// grad_z on gates; grad_c_before on grad_c, grad_h or c_before.
class LstmCellGrad final : public OpDef {
 public:
  LstmCellGrad(bool with_grad_h, bool with_grad_c, bool recurrent)
      : with_grad_h_(with_grad_h),
        with_grad_c_(with_grad_c),
        recurrent_(recurrent) {}

  std::string_view name() const override { return "lstm-cell-grad"; }
  std::string Attributes() const override {
    return ListAttributes("with grad_h", with_grad_h_, "with grad_c",
                          with_grad_c_, "recurrent", recurrent_);
  }
  Result<std::vector<ValueSpec>> Infer(
      std::span<const ValueSpec> inputs) const override;
  void Run(const BoundOp& c, const RunContext& run) const override;
  std::vector<InPlacePair> InPlace() const override;
  int64_t Flops(std::span<const ValueSpec> inputs,
                std::span<const ValueSpec> outputs) const override;
  int64_t RecomputeFlops(std::span<const ValueSpec> inputs,
                         std::span<const ValueSpec> outputs) const override;

  // Positions among the inputs, of those that are there.
  std::optional<uint32_t> grad_h() const;
  std::optional<uint32_t> grad_c() const;
  std::optional<uint32_t> c_before() const;

 private:
  bool with_grad_h_;
  bool with_grad_c_;
  bool recurrent_;
};

}  // namespace thimble::ops
