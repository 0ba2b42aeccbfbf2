// SPDX-License-Identifier: Apache-2.0
//
// The loss has no peer. Its gradient is softmax but for one element of each
// row, which is what it is compared with.
#include "kernels/softmax/softmax.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/cases.h"
#include "kernels/ours.h"
#include "kernels/softmax/reference.h"
#include "onednn_peer.h"

namespace thimble::bench {
namespace {

using kernels::F32;
using kernels::KernelContext;

std::vector<int32_t> Labels(int64_t rows, int64_t classes) {
  std::vector<int32_t> labels;
  labels.reserve(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r) {
    labels.push_back(static_cast<int32_t>(7 * r % classes));
  }
  return labels;
}

void FillLoss(OurSide& side, int64_t rows, int64_t classes) {
  const float* logits = side.Put(Values(rows * classes, 1));
  const int32_t* labels = side.Put(Labels(rows, classes));
  float* loss = side.PutZeros(1);
  auto* correct = side.PutZeros<int32_t>(1);
  side.Set(
      [=](const KernelContext& context) {
        kernels::SoftmaxCrossEntropy(rows, classes, F32(logits), labels, loss,
                                     correct, context);
      },
      [=] {
        return std::vector<float>{*loss, static_cast<float>(*correct)};
      });
}

std::vector<float> DefineLoss(int64_t rows, int64_t classes) {
  double loss = 0;
  int32_t correct = 0;
  kernels::reference::SoftmaxCrossEntropy(
      rows, classes, WideValues(rows * classes, 1).data(),
      Labels(rows, classes).data(), &loss, &correct);
  return {static_cast<float>(loss), static_cast<float>(correct)};
}

// The result is softmax again: 1 is added where it was taken off.
void FillGrad(OurSide& side, int64_t rows, int64_t classes) {
  const float* logits = side.Put(Values(rows * classes, 1));
  const int32_t* labels = side.Put(Labels(rows, classes));
  float* grad = side.PutZeros(rows * classes);
  side.Set(
      [=](const KernelContext& context) {
        kernels::SoftmaxCrossEntropyGrad(rows, classes, F32(logits), labels,
                                         1.0f, 1.0f, F32(grad), context);
      },
      [=] {
        std::vector<float> softmax(grad, grad + rows * classes);
        for (int64_t r = 0; r < rows; ++r) {
          softmax[static_cast<size_t>(r * classes + labels[r])] += 1.0f;
        }
        return softmax;
      });
}

}  // namespace

std::vector<Case> SoftmaxCases(ThreadPool* pool) {
  std::vector<Case> cases;
  for (const bool is_loss : {true, false}) {
    for (const ShapeLine& line : ReadShapes("softmax", 2)) {
      const int64_t rows = line.numbers[0];
      const int64_t classes = line.numbers[1];
      const auto bytes = static_cast<double>(4 * rows * classes);
      Case c{.family = "softmax",
             .pass = is_loss ? "loss" : "grad",
             .network = line.network,
             .shape = fmt::format("{}x{}", rows, classes),
             .work = {.exps = static_cast<double>(rows * classes),
                      .read = bytes,
                      .written = is_loss ? 0 : bytes,
                      .tensors = is_loss ? bytes : 2 * bytes},
             .sides = {Ours(
                 pool,
                 [=](OurSide& side) {
                   (is_loss ? FillLoss : FillGrad)(side, rows, classes);
                 },
                 kernels::SoftmaxCrossEntropyWorkspace(rows))}};
      if (is_loss) {
        c.definition = [=] { return DefineLoss(rows, classes); };
      } else {
        c.sides.push_back(
            {"oneDNN", [=] { return OneDnnSoftmax(rows, classes); }});
      }
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

}  // namespace thimble::bench
