// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "ops/bound_op.h"
#include "ops/sentences.h"
#include "ops/storage.h"

namespace thimble::ops {
namespace {

using enum Attention::Input;

// Keys of a sentence that FLOPs are counted for.
constexpr int64_t kCountedKeys = 32;
// Of a softmax, per probability: the scale, the largest, the difference, exp,
// the sum, a product.
constexpr int64_t kProbabilityFlops = 6;
// Of its gradient: the mean's product and sum, two products, a difference, the
// scale.
constexpr int64_t kProbabilityGradFlops = 6;

kernels::AttentionShape AttentionShapeOf(const AttentionSettings& settings,
                                         int64_t features) {
  return {
      .features = features, .heads = settings.heads, .causal = settings.causal};
}

// Multiply-adds of one product of queries and keys, and probabilities of all
// heads.
struct Pairs {
  Pairs(const AttentionSettings& settings, std::span<const ValueSpec> inputs) {
    const int64_t keys = std::min(kCountedKeys, inputs[kK].shape[0]);
    products = inputs[kQ].shape.elements() * keys;
    probabilities = inputs[kQ].shape[0] * keys * settings.heads;
  }
  int64_t products, probabilities;
};

int64_t ForwardFlops(const Pairs& pairs) {
  return int64_t{4} * pairs.products + kProbabilityFlops * pairs.probabilities;
}
// The logits, and the softmax of them.
int64_t ProbabilityFlops(const Pairs& pairs) {
  return 2 * pairs.products + kProbabilityFlops * pairs.probabilities;
}

// Of the inputs that forward and backward have in common.
Status CheckInputs(const AttentionSettings& settings,
                   std::span<const ValueSpec> inputs) {
  TH_RETURN_IF_ERROR(CheckRate(settings.dropout));
  TH_RETURN_IF_ERROR(CheckFloats(inputs.first(kQueryEnds), {"q", "k", "v"}));
  TH_RETURN_IF_ERROR(CheckEnds("query_ends", inputs[kQueryEnds]));
  TH_RETURN_IF_ERROR(CheckEnds("key_ends", inputs[kKeyEnds]));
  const Shape& q = inputs[kQ].shape;
  const Shape& k = inputs[kK].shape;
  if (q.rank() != 2 || settings.heads < 1 || q[1] % settings.heads != 0) {
    return Status::Usage(
        fmt::format("needs q [T, C] with features C that {} heads divide, got "
                    "{}",
                    settings.heads, q.ToString()));
  }
  if (k.rank() != 2 || k[1] != q[1] || inputs[kV].shape != k) {
    return Status::Usage(fmt::format(
        "q {} needs k and v [S, {}] of the same S, got {} and {}", q.ToString(),
        q[1], k.ToString(), inputs[kV].shape.ToString()));
  }
  if (inputs[kQueryEnds].shape != inputs[kKeyEnds].shape) {
    return Status::Usage(
        fmt::format("both texts need the same number of sentences, got ends {} "
                    "and {}",
                    inputs[kQueryEnds].shape.ToString(),
                    inputs[kKeyEnds].shape.ToString()));
  }
  return Status::Ok();
}

ValueSpec Like(const ValueSpec& spec) {
  return {spec.shape, DType::kF32, spec.axis};
}

}  // namespace

// ---- Forward

Result<std::vector<ValueSpec>> Attention::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckInputs(settings_, inputs));
  return std::vector<ValueSpec>{Like(inputs[kQ])};
}

ForwardResult Attention::Forward(ForwardContext& context) const {
  if (context.mode == Mode::kTrain || settings_.dropout == 0.0f) {
    return OpDef::Forward(context);
  }
  AttentionSettings kept = settings_;
  kept.dropout = 0.0f;
  return {context.emit.Emit(context.name, std::make_shared<Attention>(kept),
                            {context.inputs.begin(), context.inputs.end()},
                            Role::kActivation),
          {}};
}

void Attention::Gradient(GradientContext& context) const {
  if (!context.wanted[kQ] && !context.wanted[kK] && !context.wanted[kV]) return;
  std::vector<ValueId> inputs = {context.inputs.begin(), context.inputs.end()};
  inputs.push_back(context.grad_outputs[0]);
  const std::vector<ValueId> made = context.emit.Emit(
      context.name + ".grad", std::make_shared<AttentionGrad>(settings_),
      std::move(inputs), Role::kActivationGradient);
  for (uint32_t k : {kQ, kK, kV}) {
    if (context.wanted[k]) context.grad_inputs[k] = made[k];
  }
}

int64_t Attention::Flops(std::span<const ValueSpec> inputs,
                         std::span<const ValueSpec>) const {
  return ForwardFlops({settings_, inputs});
}

Workspace Attention::Scratch(std::span<const ValueSpec> inputs,
                             std::span<const ValueSpec>) const {
  return kernels::AttentionWorkspace(inputs[kK].shape[0]);
}

void Attention::Run(const BoundOp& c, const RunContext& run) const {
  const ValueSpec& q = c.in_spec(kQ);
  kernels::Attention(AttentionShapeOf(settings_, q.shape[1]),
                     SentencesOf(c, kQueryEnds, run),
                     SentencesOf(c, kKeyEnds, run),
                     MaskOf(settings_.dropout, settings_.stream, q, run),
                     c.In(kQ), c.In(kK), c.In(kV), c.Out(0), c.kernel);
}

// ---- Backward

Result<std::vector<ValueSpec>> AttentionGrad::Infer(
    std::span<const ValueSpec> inputs) const {
  TH_RETURN_IF_ERROR(CheckInputs(settings_, inputs));
  TH_RETURN_IF_ERROR(CheckFloat("grad_y", inputs[kGradY]));
  if (inputs[kGradY].shape != inputs[kQ].shape) {
    return Status::Usage(fmt::format("q {} needs a grad_y of its shape, got {}",
                                     inputs[kQ].shape.ToString(),
                                     inputs[kGradY].shape.ToString()));
  }
  return std::vector<ValueSpec>{Like(inputs[kQ]), Like(inputs[kK]),
                                Like(inputs[kV])};
}

// The probabilities again, and a product for their gradients and for each of
// the three results.
int64_t AttentionGrad::Flops(std::span<const ValueSpec> inputs,
                             std::span<const ValueSpec>) const {
  const Pairs pairs(settings_, inputs);
  return ProbabilityFlops(pairs) + int64_t{8} * pairs.products +
         kProbabilityGradFlops * pairs.probabilities;
}

int64_t AttentionGrad::RecomputeFlops(std::span<const ValueSpec> inputs,
                                      std::span<const ValueSpec>) const {
  return ProbabilityFlops({settings_, inputs});
}

Workspace AttentionGrad::Scratch(std::span<const ValueSpec> inputs,
                                 std::span<const ValueSpec>) const {
  return kernels::AttentionGradWorkspace(
      AttentionShapeOf(settings_, inputs[kQ].shape[1]), inputs[kQ].shape[0],
      inputs[kK].shape[0]);
}

void AttentionGrad::Run(const BoundOp& c, const RunContext& run) const {
  const ValueSpec& q = c.in_spec(kQ);
  kernels::AttentionGrad(
      AttentionShapeOf(settings_, q.shape[1]), SentencesOf(c, kQueryEnds, run),
      SentencesOf(c, kKeyEnds, run),
      MaskOf(settings_.dropout, settings_.stream, q, run), c.In(kQ), c.In(kK),
      c.In(kV), c.In(kGradY), {c.Out(0), c.Out(1), c.Out(2)}, c.kernel);
}

}  // namespace thimble::ops
