// SPDX-License-Identifier: Apache-2.0
//
// Updates change parameters and velocities where they lie. oneDNN has nothing
// like it: they are held against the bound alone.
#include "kernels/update/update.h"

#include <fmt/format.h>

#include "kernels/cases.h"
#include "kernels/ours.h"
#include "kernels/update/reference.h"

namespace thimble::bench {
namespace {

using kernels::F32;
using kernels::KernelContext;
using kernels::SgdStep;

SgdStep StepOf(bool with_momentum) {
  return {.learning_rate = 0.1f,
          .momentum = with_momentum ? 0.9f : 0.0f,
          .weight_decay = 5e-4f,
          .nesterov = with_momentum};
}

void FillSgd(OurSide& side, int64_t n, bool with_momentum) {
  float* param = side.Put(Values(n, 1));
  const float* grad = side.Put(Values(n, 2));
  float* velocity = with_momentum ? side.Put(Values(n, 3)) : nullptr;
  side.Set(
      [=, step = StepOf(with_momentum)](const KernelContext& context) {
        kernels::SgdUpdate(n, step, F32(param), F32(grad), F32(velocity),
                           context);
      },
      param, n);
}

std::vector<float> DefineSgd(int64_t n, bool with_momentum) {
  std::vector<double> param = WideValues(n, 1);
  std::vector<double> velocity = WideValues(n, 3);
  kernels::reference::SgdUpdate(n, StepOf(with_momentum), param.data(),
                                WideValues(n, 2).data(),
                                with_momentum ? velocity.data() : nullptr);
  return Rounded(param);
}

}  // namespace

std::vector<Case> UpdateCases(ThreadPool* pool) {
  std::vector<Case> cases;
  for (const bool with_momentum : {false, true}) {
    for (const ShapeLine& line : ReadShapes("update", 1)) {
      const int64_t n = line.numbers[0];
      const auto bytes = static_cast<double>(4 * n);
      cases.push_back(
          {.family = "update",
           .pass = with_momentum ? "nesterov" : "sgd",
           .network = line.network,
           .shape = fmt::format("{}", n),
           .work = {.read = (with_momentum ? 3 : 2) * bytes,
                    .written = (with_momentum ? 2 : 1) * bytes,
                    .tensors = (with_momentum ? 3 : 2) * bytes},
           .sides = {Ours(
               pool, [=](OurSide& side) { FillSgd(side, n, with_momentum); })},
           .definition = [=] { return DefineSgd(n, with_momentum); }});
    }
  }
  return cases;
}

}  // namespace thimble::bench
