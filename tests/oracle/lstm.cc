// SPDX-License-Identifier: Apache-2.0
//
// The two ops of an LSTM's step, which come together.
#include "kernels/elementwise/reference.h"
#include "kernels/lstm/reference.h"
#include "kernels/matmul/reference.h"
#include "ops/linear.h"
#include "ops/lstm_cell.h"
#include "ops/lstm_gates.h"
#include "oracle.h"

namespace thimble::testing {
namespace {

struct LstmGatesEntry {
  using Def = ops::LstmGates;

  template <typename T>
  static void Forward(const Def& def, const ForwardPass<T>& pass) {
    namespace ref = kernels::reference;
    const auto product = [&](size_t weight, size_t of, T* to) {
      ref::LinearForward(ops::LinearShapeOf(pass.InSpec(weight)), pass.rows(),
                         pass.In(of), pass.In(weight), to);
    };
    T* z = pass.out[0];
    product(Def::kWX, Def::kX, z);
    if (def.recurrent()) {
      std::vector<T> recurrent(static_cast<size_t>(pass.OutElements(0)));
      product(Def::kWH, Def::kH, recurrent.data());
      ref::Add(pass.OutElements(0), z, recurrent.data(), z);
    }
    ref::BiasAdd(pass.rows(), pass.OutShape(0)[1], 1, z, pass.In(Def::kBias),
                 z);
  }

  static void Backward(const Def& def, BackwardPass& pass) {
    namespace ref = kernels::reference;
    const double* g = pass.grad_out[0];
    const auto product = [&](size_t of, size_t weight) {
      const auto shape = ops::LinearShapeOf(pass.forward.InSpec(weight));
      pass.Give(weight, [&](double* grad_w) {
        ref::LinearGradWeight(shape, pass.rows(), pass.In(of), g, grad_w);
      });
      pass.Give(of, [&](double* grad_x) {
        ref::LinearGradInput(shape, pass.rows(), g, pass.In(weight), grad_x);
      });
    };
    product(Def::kX, Def::kWX);
    pass.Give(Def::kBias, [&](double* grad_bias) {
      ref::BiasGrad(pass.rows(), pass.forward.InShape(Def::kBias)[0], 1, g,
                    grad_bias);
    });
    if (def.recurrent()) product(Def::kH, Def::kWH);
  }

  // Those of the cell have it.
  static std::vector<Sample> Samples() { return {}; }
};

struct LstmCellEntry {
  using Def = ops::LstmCell;

  template <typename T>
  static void Forward(const Def& def, const ForwardPass<T>& pass) {
    kernels::reference::LstmCell<T>(
        {.rows = pass.rows(), .hidden = pass.OutShape(0)[1]},
        def.forget_offset(), pass.In(Def::kZ),
        def.recurrent() ? pass.In(Def::kCBefore) : nullptr, pass.out[0],
        pass.out[1], nullptr);
  }

  // Gates are not kept by the forward pass here; they are made again.
  static void Backward(const Def& def, BackwardPass& pass) {
    namespace ref = kernels::reference;
    using Tensor = std::vector<double>;
    const kernels::LstmShape shape{pass.rows(), pass.forward.OutShape(0)[1]};
    const double* before = def.recurrent() ? pass.In(Def::kCBefore) : nullptr;
    Tensor gates(pass.grad_in[Def::kZ]->size()), grad_z(gates.size());
    Tensor h(gates.size() / 4), c(h.size()), grad_before(h.size());
    ref::LstmCell<double>(shape, def.forget_offset(), pass.In(Def::kZ), before,
                          h.data(), c.data(), gates.data());
    for (double& gate : gates) gate *= pass.factors.Next();
    ref::LstmCellGrad<double>(shape, gates.data(), before, pass.grad_out[0],
                              pass.grad_out[1], grad_z.data(),
                              grad_before.data());
    const auto give = [&](size_t k, const Tensor& made) {
      pass.Give(k, [&](double* to) { std::ranges::copy(made, to); });
    };
    give(Def::kZ, grad_z);
    if (def.recurrent()) give(Def::kCBefore, grad_before);
  }

  // Steps on one and the same rows, of which h, c or both are read.
  static std::vector<Sample> Samples() {
    const auto steps = [](Network& net, ValueId x, const std::string& name) {
      const ValueId row = net.Linear(name + "row", x, 4);
      const LstmWeights weights = net.Lstm(name, 4, 4);
      LstmState state = net.LstmStep(name + "1", row, weights, {});
      state = net.LstmStep(name + "2", row, weights, state);
      // Once the row is the state too.
      return net.LstmStep(name + "3", row, weights, {.h = row, .c = state.c});
    };
    return {{"of which h is read", On::kRows,
             [steps](Network& net, ValueId x, const std::string& name) {
               return steps(net, x, name).h;
             }},
            {"of which c is read", On::kRows,
             [steps](Network& net, ValueId x, const std::string& name) {
               return steps(net, x, name).c;
             }},
            {"of which both are read", On::kRows,
             [steps](Network& net, ValueId x, const std::string& name) {
               const LstmState state = steps(net, x, name);
               return net.Add(state.h, state.c);
             }},
            {"of one step", On::kRows,
             [](Network& net, ValueId x, const std::string& name) {
               const ValueId row = net.Linear(name + "row", x, 2);
               return net.LstmStep(name, row, net.Lstm(name, 2, 3), {}).h;
             }}};
  }
};

const Registration<LstmGatesEntry> kLstmGatesEntry;
const Registration<LstmCellEntry> kLstmCellEntry;

}  // namespace
}  // namespace thimble::testing
