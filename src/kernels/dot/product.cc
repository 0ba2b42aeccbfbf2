// SPDX-License-Identifier: Apache-2.0
#include "kernels/dot/product.h"

#include <algorithm>
#include <cstring>

#include "kernels/dot/dot_form.h"
#include "kernels/dot/flush.h"

#if defined(__x86_64__)
#define THIMBLE_DOT_INCLUDE "kernels/dot/product-inl.h"
#include "kernels/dot/foreach_build.h"
#endif

namespace thimble::kernels {
namespace dot {

using matmul::kStagedRows;
using matmul::Product;
using matmul::StagedScratch;

bool IsDotProduct(const Product& product) {
  return ActiveDotForm() != DotForm::kNone &&
         product.a.dtype() == DType::kBF16 &&
         product.b.dtype() == DType::kBF16 &&
         (product.c.dtype() == DType::kBF16 ||
          product.c.dtype() == DType::kF32);
}

// Threads share the pairs (block of columns, group of rows), blocks outermost.
void MultiplyByDots(const Product& p, const KernelContext& context) {
#if defined(__x86_64__)
  const StagedScratch layout(p.rows, p.cols, p.depth, p.c.dtype());
  const size_t groups = (p.rows + kGroupRows - 1) / kGroupRows;
  const size_t blocks = (p.cols + layout.columns - 1) / layout.columns;
  const auto multiply = THIMBLE_DOT_TABLE(MultiplyBlock).Get();
  context.pool->ParallelFor(
      static_cast<int64_t>(blocks * groups),
      [&](int64_t begin, int64_t end, int thread) {
        const FlushDenormals flush;
        const auto last = static_cast<size_t>(end);
        for (auto i = static_cast<size_t>(begin); i < last;) {
          const size_t group = i % groups;
          const size_t count = std::min(
              {groups - group, last - i, size_t{kStagedRows / kGroupRows}});
          const size_t row = group * kGroupRows;
          const size_t column = i / groups * layout.columns;
          const ProductBlock block = {
              row, std::min(count * kGroupRows, p.rows - row), column,
              std::min(layout.columns, p.cols - column)};
          multiply(p, layout, block, context.PerThread<float>(thread));
          i += count;
        }
      });
#else
  (void)p, (void)context;
  TH_CHECK(false);  // no other CPU has dot products
#endif
}

}  // namespace dot
}  // namespace thimble::kernels
