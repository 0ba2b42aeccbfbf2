// SPDX-License-Identifier: Apache-2.0
#include "optim/sgd_fold.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/rng.h"
#include "ops/bound_op.h"
#include "ops/gradient_out.h"
#include "optim/state.h"

namespace thimble::optim {
namespace {

constexpr size_t kMostValues = 32;  // inputs or outputs of an op

// Bits of `word` with a 0 put in at `at`, and without the one there.
uint32_t WithBit(uint32_t word, uint32_t at) {
  const uint32_t below = (1u << at) - 1;
  return (word & below) | ((word & ~below) << 1);
}
uint32_t WithoutBit(uint32_t word, uint32_t at) {
  const uint32_t below = (1u << at) - 1;
  return (word & below) | ((word >> 1) & ~below);
}

// As what the maker is told that its gradient is stored.
ValueSpec GradientSpec(const ValueSpec& parameter) {
  ValueSpec spec{parameter.shape, U8InBlocks()};
  spec.storage.sparsity = parameter.storage.sparsity;
  return spec;
}

// One run of a fold.
class SgdFolder final : public kernels::GradFold {
 public:
  struct Into {
    kernels::Tensor param, velocity;
  };
  SgdFolder(const SgdOptions& options, const Optimizer::FoldPart& part,
            bool whole, const RunContext& run, const Into& into)
      : part_(part),
        whole_(whole),
        run_(run),
        step_(SgdStepOf(options, run, UpdateStream(part.position))),
        into_(into) {}

  void Fold(int64_t call, int64_t first, int64_t n,
            float* sums) const override {
    TH_CHECK(!whole_ || call == 0);
    const bool is_first = !run_.accumulate && part_.part == 0 && call == 0;
    kernels::SgdStep step = step_;
    const int64_t image = run_.PartOf(kBatchAxis).first + call;
    step.random = ops::GradientRandom(run_, image * part_.parts + part_.part,
                                      step_.random.stream);
    const auto form = whole_     ? kernels::SgdFold::kWhole
                      : is_first ? kernels::SgdFold::kFirst
                                 : kernels::SgdFold::kNext;
    const bool look = run_.overflow != nullptr;
    if (kernels::SgdFoldPiece(first, n, step, form, look, sums, into_.param,
                              into_.velocity)) {
      return;
    }
    run_.overflow->store(true, std::memory_order_relaxed);
  }

 private:
  const Optimizer::FoldPart& part_;
  bool whole_;
  const RunContext& run_;
  kernels::SgdStep step_;
  Into into_;
};

}  // namespace

SgdFoldGrad::SgdFoldGrad(const SgdOptions& options,
                         const Optimizer::FoldPart& part, bool whole)
    : options_(options), part_(part), whole_(whole) {
  for (const InPlacePair& pair : part.maker->InPlace()) {
    if (pair.output == part.output) sum_ = pair.input;
  }
}

std::string SgdFoldGrad::Attributes() const {
  const std::string own = ListAttributes(
      "output", int64_t{part_.output}, "momentum", options_.momentum,
      "weight decay", options_.weight_decay, "nesterov", options_.nesterov,
      "rounding", options_.rounding, "position", int64_t{part_.position},
      "part", int64_t{part_.part}, "of", int64_t{part_.parts}, "whole", whole_);
  return fmt::format("{} ({}), {}", part_.maker->name(),
                     part_.maker->Attributes(), own);
}

std::vector<ValueSpec> SgdFoldGrad::MakerInputs(
    std::span<const ValueSpec> inputs) const {
  TH_CHECK(inputs.size() >= Own());
  std::vector<ValueSpec> specs(inputs.begin() + Own(), inputs.end());
  if (sum_.has_value()) {
    specs.insert(specs.begin() + *sum_, GradientSpec(inputs[0]));
  }
  return specs;
}

std::vector<ValueSpec> SgdFoldGrad::MakerOutputs(
    std::span<const ValueSpec> inputs,
    std::span<const ValueSpec> outputs) const {
  std::vector<ValueSpec> specs(outputs.begin(), outputs.end());
  specs.insert(specs.begin() + part_.output, GradientSpec(inputs[0]));
  return specs;
}

Result<std::vector<ValueSpec>> SgdFoldGrad::Infer(
    std::span<const ValueSpec> inputs) const {
  static constexpr std::string_view kNames[] = {"parameter", "velocity"};
  TH_RETURN_IF_ERROR(CheckUpdateInputs(inputs.first(Own()), kNames));
  TH_ASSIGN_OR_RETURN(std::vector<ValueSpec> outputs,
                      part_.maker->Infer(MakerInputs(inputs)));
  TH_CHECK(part_.output < outputs.size());
  const Shape& gradient = outputs[part_.output].shape;
  if (gradient != inputs[0].shape) {
    return Status::Usage(
        fmt::format("needs values of one shape, got a gradient {} and a "
                    "parameter {}",
                    gradient.ToString(), inputs[0].shape.ToString()));
  }
  outputs.erase(outputs.begin() + part_.output);
  return outputs;
}

void SgdFoldGrad::Run(const BoundOp& op, const RunContext& run) const {
  const SgdFolder folder(
      options_, part_, whole_, run,
      {op.MutableValues(0),
       Own() > 1 ? op.MutableValues(1) : kernels::Tensor::None()});
  const ValueSpec gradient = GradientSpec(op.in_spec(0));
  std::array<BoundValue, kMostValues> inputs;
  std::array<BoundValue, kMostValues> outputs;
  const auto with = [](std::span<const BoundValue> from, uint32_t at,
                       const BoundValue& value, std::span<BoundValue> to) {
    TH_CHECK(at <= from.size() && from.size() < to.size());
    std::ranges::copy(from.first(at), to.begin());
    to[at] = value;
    std::ranges::copy(from.subspan(at), to.begin() + at + 1);
    return to.first(from.size() + 1);
  };
  std::span<const BoundValue> of_maker = op.inputs.subspan(Own());
  if (sum_.has_value()) {
    of_maker = with(of_maker, *sum_, {.spec = &gradient}, inputs);
  }
  const BoundOp maker = {
      .inputs = of_maker,
      .outputs = with(
          op.outputs, part_.output,
          {.spec = &gradient, .fold = &folder, .pattern = op.inputs[0].pattern},
          outputs),
      .carried = WithBit(op.carried, part_.output),
      .kernel = op.kernel};
  part_.maker->Run(maker, run);
}

std::vector<InPlacePair> SgdFoldGrad::InPlace() const {
  std::vector<InPlacePair> pairs = part_.maker->InPlace();
  std::erase_if(pairs, [this](const InPlacePair& pair) {
    return pair.output == part_.output;
  });
  for (InPlacePair& pair : pairs) {
    if (pair.output > part_.output) --pair.output;
    if (sum_.has_value() && pair.input > *sum_) --pair.input;
    pair.input += Own();
  }
  return pairs;
}

uint32_t SgdFoldGrad::Accumulates() const {
  return WithoutBit(part_.maker->Accumulates(), part_.output);
}

uint32_t SgdFoldGrad::Mutates() const {
  uint32_t of_maker = part_.maker->Mutates();
  if (sum_.has_value()) of_maker = WithoutBit(of_maker, *sum_);
  const uint32_t own = (whole_ ? 0b01u : 0u) | (Own() > 1 ? 0b10u : 0u);
  return own | (of_maker << Own());
}

// Of the gradient alone: the work of an update is not part of a step's.
int64_t SgdFoldGrad::Flops(std::span<const ValueSpec> inputs,
                           std::span<const ValueSpec> outputs) const {
  return part_.maker->Flops(MakerInputs(inputs), MakerOutputs(inputs, outputs));
}

int64_t SgdFoldGrad::RecomputeFlops(std::span<const ValueSpec> inputs,
                                    std::span<const ValueSpec> outputs) const {
  return part_.maker->RecomputeFlops(MakerInputs(inputs),
                                     MakerOutputs(inputs, outputs));
}

Workspace SgdFoldGrad::Scratch(std::span<const ValueSpec> inputs,
                               std::span<const ValueSpec> outputs) const {
  return part_.maker->Scratch(MakerInputs(inputs),
                              MakerOutputs(inputs, outputs));
}

Result<std::vector<ValueSpec>> SgdApply::Infer(
    std::span<const ValueSpec> inputs) const {
  static constexpr std::string_view kNames[] = {"parameter", "velocity"};
  TH_RETURN_IF_ERROR(CheckUpdateInputs(inputs, kNames));
  return std::vector<ValueSpec>{};
}

void SgdApply::Run(const BoundOp& op, const RunContext& run) const {
  kernels::SgdApply(op.inputs[kParameter].elements(),
                    SgdStepOf(options_, run, UpdateStream(position_)),
                    op.MutableValues(kParameter), op.MutableValues(kVelocity),
                    op.kernel);
}

}  // namespace thimble::optim
