// SPDX-License-Identifier: Apache-2.0
#include "planner/step_cost.h"

#include <algorithm>
#include <span>
#include <vector>

#include "graph/op.h"

namespace thimble::planner {
namespace {

// Time of a product over that of the same product in f32, in percent.
struct ProductCosts {
  int64_t f16;
  int64_t bf16;
};

// A type that is only stored is widened and rounded on the way, for which
// kernels may take a twentieth of the time. With dot products of bf16,
// Winograd's convolutions of 32 to 128 channels on a Zen 4 core ran at 356 to
// 386 GFLOP/s forward and 340 to 398 for the weights' gradients, where those in
// f32 gave 202 to 204 and 154 to 182: 0.43 to 0.57 of the time, forward and the
// gradient of the input, two products of three, at the upper end.
ProductCosts CostsOn(TargetClass target) {
  switch (target) {
    case TargetClass::kGeneric:
      break;
    case TargetClass::kAvx512Bf16:
      return {.f16 = 105, .bf16 = 55};
  }
  return {.f16 = 105, .bf16 = 105};
}

// Products do many FLOPs for each number that they read or write; with fewer,
// an op waits for memory, whatever its arithmetic costs. Norms, pools and cells
// do up to ten, convolutions and layers at least twice their depth.
constexpr int64_t kFlopsOfProducts = 16;

bool IsProduct(std::span<const ValueSpec> inputs,
               std::span<const ValueSpec> outputs, int64_t flops) {
  int64_t most = 0;
  for (const ValueSpec& spec : inputs) most = std::max(most, spec.kept());
  for (const ValueSpec& spec : outputs) most = std::max(most, spec.kept());
  return flops >= kFlopsOfProducts * most;
}

// Whether both factors are stored so: the matrices and activations among
// `inputs`. Feeds of bytes are none.
bool AllIn(DType dtype, std::span<const ValueSpec> inputs) {
  int found = 0;
  for (const ValueSpec& spec : inputs) {
    const DType type = spec.storage.dtype;
    const bool is_float =
        type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
    if (!is_float || spec.shape.rank() < 2) continue;
    if (type != dtype) return false;
    ++found;
  }
  return found >= 2;
}

int64_t PercentOf(std::span<const ValueSpec> inputs,
                  std::span<const ValueSpec> outputs, int64_t flops,
                  const ProductCosts& costs) {
  if (!IsProduct(inputs, outputs, flops)) return 100;
  if (AllIn(DType::kF16, inputs)) return costs.f16;
  if (AllIn(DType::kBF16, inputs)) return costs.bf16;
  return 100;
}

}  // namespace

int64_t StepCost(const Program& program, TargetClass target) {
  const ProductCosts costs = CostsOn(target);
  const Graph& graph = program.graph;
  int64_t cost = 0;
  for (OpId id : program.phases[static_cast<size_t>(Phase::kMicrobatch)]) {
    const Op& op = graph.op(id);
    const std::vector<ValueSpec> inputs = graph.InputSpecs(op);
    const std::vector<ValueSpec> outputs = graph.OutputSpecs(op);
    const int64_t flops = op.def->Flops(inputs, outputs);
    cost += flops * PercentOf(inputs, outputs, flops, costs);
  }
  return cost;
}

}  // namespace thimble::planner
