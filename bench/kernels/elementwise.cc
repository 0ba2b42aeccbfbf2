// SPDX-License-Identifier: Apache-2.0
#include "kernels/elementwise/elementwise.h"

#include <fmt/format.h>

#include <functional>
#include <optional>

#include "kernels/cases.h"
#include "kernels/elementwise/reference.h"
#include "kernels/ours.h"
#include "onednn_peer.h"

namespace thimble::bench {
namespace {

using kernels::F32;
using kernels::KernelContext;

size_t MaskBytes(int64_t n) { return static_cast<size_t>((n + 7) / 8); }

std::vector<uint8_t> MaskOf(int64_t n) {
  std::vector<uint8_t> mask(MaskBytes(n));
  kernels::reference::ReluMask(n, Values(n, 1).data(), mask.data());
  return mask;
}

constexpr kernels::DropoutMask kDropped = {
    .seed = 1, .step = 2, .stream = 3, .rate = 0.3f};

// One kernel over n elements: the bytes of each that it must read and write.
struct ElementwiseOp {
  const char* name;
  double read, written;
  std::function<void(OurSide&, int64_t n)> fill;
  std::optional<Elementwise> peer;
  // Where there is no peer.
  std::function<std::vector<float>(int64_t n)> definition;
};

void FillAdd(OurSide& side, int64_t n) {
  const float* a = side.Put(Values(n, 1));
  const float* b = side.Put(Values(n, 2));
  float* y = side.PutZeros(n);
  side.Set(
      [=](const KernelContext& context) {
        kernels::Add(n, F32(a), F32(b), F32(y), context);
      },
      y, n);
}

void FillRelu(OurSide& side, int64_t n) {
  const float* x = side.Put(Values(n, 1));
  float* y = side.PutZeros(n);
  side.Set(
      [=](const KernelContext& context) {
        kernels::Relu(n, F32(x), F32(y), context);
      },
      y, n);
}

// The input has the sign of the output, which is what the kernel looks at.
void FillReluGrad(OurSide& side, int64_t n) {
  const float* y = side.Put(Values(n, 1));
  const float* grad_y = side.Put(Values(n, 2));
  float* grad_x = side.PutZeros(n);
  side.Set(
      [=](const KernelContext& context) {
        kernels::ReluGradFromOutput(n, F32(y), F32(grad_y), F32(grad_x),
                                    context);
      },
      grad_x, n);
}

// The result is y, then the mask's bytes.
void FillReluMask(OurSide& side, int64_t n) {
  const float* x = side.Put(Values(n, 1));
  float* y = side.PutZeros(n);
  auto* mask = side.PutZeros<uint8_t>((n + 7) / 8);
  side.Set(
      [=](const KernelContext& context) {
        kernels::ReluWithMask(n, F32(x), F32(y), mask, context);
      },
      [=] {
        std::vector<float> result(y, y + n);
        result.insert(result.end(), mask, mask + MaskBytes(n));
        return result;
      });
}

std::vector<float> DefineReluMask(int64_t n) {
  const std::vector<float> x = Values(n, 1);
  std::vector<float> y(x.size());
  kernels::reference::Relu(n, x.data(), y.data());
  const std::vector<uint8_t> mask = MaskOf(n);
  y.insert(y.end(), mask.begin(), mask.end());
  return y;
}

void FillReluMaskGrad(OurSide& side, int64_t n) {
  const uint8_t* mask = side.Put(MaskOf(n));
  const float* grad_y = side.Put(Values(n, 2));
  float* grad_x = side.PutZeros(n);
  side.Set(
      [=](const KernelContext& context) {
        kernels::ReluGradFromMask(n, mask, F32(grad_y), F32(grad_x), context);
      },
      grad_x, n);
}

std::vector<float> DefineReluMaskGrad(int64_t n) {
  const std::vector<float> grad_y = Values(n, 2);
  std::vector<float> grad_x(grad_y.size());
  kernels::reference::ReluGradFromMask(n, MaskOf(n).data(), grad_y.data(),
                                       grad_x.data());
  return grad_x;
}

void FillDropout(OurSide& side, int64_t n) {
  const float* x = side.Put(Values(n, 1));
  float* y = side.PutZeros(n);
  side.Set(
      [=](const KernelContext& context) {
        kernels::Dropout(1, n, kDropped, F32(x), F32(y), context);
      },
      y, n);
}

std::vector<float> DefineDropout(int64_t n) {
  const std::vector<float> x = Values(n, 1);
  std::vector<float> y(x.size());
  kernels::reference::Dropout(1, n, kDropped, x.data(), y.data());
  return y;
}

const std::vector<ElementwiseOp>& Ops() {
  static const std::vector<ElementwiseOp> ops = {
      {"relu", 4, 4, FillRelu, Elementwise::kRelu, nullptr},
      {"relu-grad", 8, 4, FillReluGrad, Elementwise::kReluGrad, nullptr},
      {"relu-mask", 4, 4.125, FillReluMask, {}, DefineReluMask},
      {"relu-mask-grad", 4.125, 4, FillReluMaskGrad, {}, DefineReluMaskGrad},
      {"add", 8, 4, FillAdd, Elementwise::kAdd, nullptr},
      {"dropout", 4, 4, FillDropout, {}, DefineDropout}};
  return ops;
}

}  // namespace

std::vector<Case> ElementwiseCases(ThreadPool* pool) {
  std::vector<Case> cases;
  for (const ElementwiseOp& op : Ops()) {
    for (const ShapeLine& line : ReadShapes("elementwise", 1)) {
      const int64_t n = line.numbers[0];
      const auto elements = static_cast<double>(n);
      Case c{.family = "elementwise",
             .pass = op.name,
             .network = line.network,
             .shape = fmt::format("{}", n),
             .work = {.read = op.read * elements,
                      .written = op.written * elements,
                      .tensors = (op.read + op.written) * elements},
             .sides = {Ours(
                 pool, [n, fill = op.fill](OurSide& side) { fill(side, n); })}};
      if (op.peer) {
        c.sides.push_back({"oneDNN", [what = *op.peer, n] {
                             return OneDnnElementwise(what, n);
                           }});
      } else {
        c.definition = [n, define = op.definition] { return define(n); };
      }
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

}  // namespace thimble::bench
