// SPDX-License-Identifier: Apache-2.0
//
// One step of an LSTM after its products. oneDNN has it only with the products
// in one primitive: it is held against the bound alone.
#include "kernels/lstm/lstm.h"

#include <fmt/format.h>

#include "kernels/cases.h"
#include "kernels/lstm/reference.h"
#include "kernels/ours.h"

namespace thimble::bench {
namespace {

using kernels::F32;
using kernels::KernelContext;
using kernels::LstmShape;

constexpr float kForgetOffset = 1.0f;

// The result is the rows of h, then those of c.
void FillCell(OurSide& side, const LstmShape& s) {
  const int64_t n = s.rows * s.hidden;
  const float* z = side.Put(Values(4 * n, 1));
  const float* before = side.Put(Values(n, 2));
  float* states = side.PutZeros(2 * n);
  float* gates = side.PutZeros(4 * n);
  side.Set(
      [=](const KernelContext& context) {
        kernels::LstmCell(
            s, {F32(z), F32(before), kForgetOffset},
            {.h = F32(states), .c = F32(states + n), .gates = F32(gates)},
            context);
      },
      states, 2 * n);
}

std::vector<float> DefineCell(const LstmShape& s) {
  const int64_t n = s.rows * s.hidden;
  std::vector<double> states(static_cast<size_t>(2 * n));
  kernels::reference::LstmCell<double>(
      s, kForgetOffset, WideValues(4 * n, 1).data(), WideValues(n, 2).data(),
      states.data(), states.data() + n, nullptr);
  return Rounded(states);
}

// The result is the rows of grad_z, then those of grad_c_before.
void FillGrad(OurSide& side, const LstmShape& s) {
  const int64_t n = s.rows * s.hidden;
  const float* gates = side.Put(Values(4 * n, 1));
  const float* before = side.Put(Values(n, 2));
  const float* grad_h = side.Put(Values(n, 3));
  const float* grad_c = side.Put(Values(n, 4));
  float* grads = side.PutZeros(5 * n);
  side.Set(
      [=](const KernelContext& context) {
        kernels::LstmCellGrad(
            s, {F32(gates), F32(before), F32(grad_h), F32(grad_c)},
            {.grad_z = F32(grads), .grad_c_before = F32(grads + 4 * n)},
            context);
      },
      grads, 5 * n);
}

std::vector<float> DefineGrad(const LstmShape& s) {
  const int64_t n = s.rows * s.hidden;
  std::vector<double> grads(static_cast<size_t>(5 * n));
  kernels::reference::LstmCellGrad(
      s, WideValues(4 * n, 1).data(), WideValues(n, 2).data(),
      WideValues(n, 3).data(), WideValues(n, 4).data(), grads.data(),
      grads.data() + 4 * n);
  return Rounded(grads);
}

}  // namespace

std::vector<Case> LstmCases(ThreadPool* pool) {
  std::vector<Case> cases;
  for (const bool forward : {true, false}) {
    for (const ShapeLine& line : ReadShapes("lstm", 2)) {
      const LstmShape s = {.rows = line.numbers[0], .hidden = line.numbers[1]};
      const auto n = static_cast<double>(s.rows * s.hidden);
      // Forward: z and c in; h, c and gates out; three sigmoids and two tanhs.
      // Backward: gates, c and two gradients in; those of z and c out; one
      // tanh.
      const Work work = forward ? Work{.exps = 3 * n,
                                       .tanhs = 2 * n,
                                       .read = 20 * n,
                                       .written = 24 * n,
                                       .tensors = 44 * n}
                                : Work{.tanhs = n,
                                       .read = 28 * n,
                                       .written = 20 * n,
                                       .tensors = 48 * n};
      cases.push_back({.family = "lstm",
                       .pass = forward ? "cell" : "cell-grad",
                       .network = line.network,
                       .shape = fmt::format("{}x{}", s.rows, s.hidden),
                       .work = work,
                       .sides = {Ours(pool,
                                      [=](OurSide& side) {
                                        (forward ? FillCell : FillGrad)(side,
                                                                        s);
                                      })},
                       .definition = [=] {
                         return (forward ? DefineCell : DefineGrad)(s);
                       }});
    }
  }
  return cases;
}

}  // namespace thimble::bench
