// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul/matmul.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cases.h"
#include "kernels/dot/dot_form.h"
#include "kernels/ours.h"
#include "onednn_peer.h"
#include "thimble/dtype.h"

namespace thimble::bench {
namespace {

using kernels::ConstTensor;
using kernels::KernelContext;
using kernels::LinearShape;
using kernels::LinearStorage;
using kernels::Tensor;

Workspace WorkspaceOf(const LinearShape& shape, MatmulPass pass, DType dtype) {
  const LinearStorage storage = {dtype, dtype, dtype};
  switch (pass) {
    case MatmulPass::kForward:
      return LinearForwardWorkspace(shape, storage);
    case MatmulPass::kGradInput:
      return LinearGradInputWorkspace(shape, storage);
    case MatmulPass::kGradWeight:
      return LinearGradWeightWorkspace(shape, storage);
  }
  return {};
}

// Of bf16 the upper half of each f32: no value of Values() needs the lower one.
std::vector<uint16_t> Halves(const std::vector<float>& values) {
  std::vector<uint16_t> halves;
  halves.reserve(values.size());
  for (const float value : values) {
    halves.push_back(
        static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
  }
  return halves;
}

Tensor Put(OurSide& side, DType dtype, const std::vector<float>& values) {
  if (dtype == DType::kBF16) return {side.Put(Halves(values)), dtype};
  return {side.Put(values), dtype};
}

std::vector<float> Read(const Tensor& tensor, int64_t n) {
  const auto count = static_cast<size_t>(n);
  if (tensor.dtype() == DType::kF32) {
    return {tensor.f32(), tensor.f32() + count};
  }
  std::vector<float> values;
  values.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    values.push_back(std::bit_cast<float>(
        static_cast<uint32_t>(tensor.halves(DType::kBF16)[i]) << 16));
  }
  return values;
}

void FillMatmul(OurSide& side, const MatmulSize& s, MatmulPass pass,
                DType dtype) {
  const LinearShape shape = {.in = s.in, .out = s.out};
  const int64_t rows = s.rows;
  const auto x = [&] { return Put(side, dtype, Values(s.rows * s.in, 1)); };
  const auto w = [&] { return Put(side, dtype, Values(s.in * s.out, 2)); };
  const auto grad_y = [&] {
    return Put(side, dtype, Values(s.rows * s.out, 3));
  };
  // Sets the call of `pass` on two tensors, and its result of n values.
  const auto set = [&](auto function, const ConstTensor& a,
                       const ConstTensor& b, int64_t n) {
    const Tensor to =
        Put(side, dtype, std::vector<float>(static_cast<size_t>(n)));
    side.Set(
        [=](const KernelContext& context) {
          function(shape, rows, a, b, {to}, context);
        },
        [=] { return Read(to, n); });
  };
  switch (pass) {
    case MatmulPass::kForward:
      return set(kernels::LinearForward, x(), w(), s.rows * s.out);
    case MatmulPass::kGradInput:
      return set(kernels::LinearGradInput, grad_y(), w(), s.rows * s.in);
    case MatmulPass::kGradWeight:
      return set(kernels::LinearGradWeight, x(), grad_y(), s.in * s.out);
  }
}

// Where dot products do it, their peak is the bound.
Work WorkOf(const MatmulSize& s, MatmulPass pass, DType dtype) {
  const auto bytes = static_cast<double>(BytesFor(dtype, 1));
  const auto flops = static_cast<double>(2 * s.rows * s.in * s.out);
  const double x = bytes * static_cast<double>(s.rows * s.in);
  const double w = bytes * static_cast<double>(s.in * s.out);
  const double y = bytes * static_cast<double>(s.rows * s.out);
  const double made = pass == MatmulPass::kForward     ? y
                      : pass == MatmulPass::kGradInput ? x
                                                       : w;
  const bool dots = dtype == DType::kBF16 &&
                    kernels::ActiveDotForm() == kernels::DotForm::kNative;
  return {.flops = dots ? 0 : flops,
          .dots = dots ? flops : 0,
          .read = x + w + y - made,
          .written = made,
          .tensors = x + w + y};
}

// A sum near the middle between two of bf16's values is rounded to the one or
// the other, and some sums are several times the root mean square.
constexpr double kBf16Tolerance = 5e-2;

}  // namespace

std::vector<Case> MatmulCases(ThreadPool* pool, DType dtype) {
  const std::pair<MatmulPass, const char*> passes[] = {
      {MatmulPass::kForward, "forward"},
      {MatmulPass::kGradInput, "grad-input"},
      {MatmulPass::kGradWeight, "grad-weight"}};
  std::vector<Case> cases;
  for (const auto& [pass, pass_name] : passes) {
    for (const ShapeLine& line : ReadShapes("matmul", 3)) {
      const MatmulSize s = {line.numbers[0], line.numbers[1], line.numbers[2]};
      const MatmulPass p = pass;
      cases.push_back(
          {.family = "matmul",
           .pass = pass_name,
           .network = line.network,
           .shape = fmt::format("{}x{}->{}", s.rows, s.in, s.out),
           .work = WorkOf(s, p, dtype),
           .sides = {
               Ours(
                   pool, [=](OurSide& side) { FillMatmul(side, s, p, dtype); },
                   WorkspaceOf({.in = s.in, .out = s.out}, p, dtype)),
               {"oneDNN", [=] { return OneDnnMatmul(s, p, dtype); }}}});
      if (dtype == DType::kBF16) cases.back().tolerance = kBf16Tolerance;
    }
  }
  return cases;
}

}  // namespace thimble::bench
