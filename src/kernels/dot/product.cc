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

#if defined(__x86_64__)

namespace {

// C as pairs (block of columns, group of rows), blocks outermost.
class Pairs {
 public:
  explicit Pairs(const Product& p)
      : p_(p),
        layout_(p.rows, p.cols, p.depth, p.c.dtype()),
        groups_((p.rows + kGroupRows - 1) / kGroupRows),
        multiply_(THIMBLE_DOT_TABLE(MultiplyBlock).Get()) {}

  size_t count() const {
    return (p_.cols + layout_.columns - 1) / layout_.columns * groups_;
  }

  // Pairs [begin, end).
  void Multiply(size_t begin, size_t end, float* scratch) const {
    const FlushDenormals flush;
    for (size_t i = begin; i < end;) {
      const size_t group = i % groups_;
      const size_t count = std::min(
          {groups_ - group, end - i, size_t{kStagedRows / kGroupRows}});
      const size_t row = group * kGroupRows;
      const size_t column = i / groups_ * layout_.columns;
      const ProductBlock block = {
          row, std::min(count * kGroupRows, p_.rows - row), column,
          std::min(layout_.columns, p_.cols - column)};
      multiply_(p_, layout_, block, scratch);
      i += count;
    }
  }

 private:
  const Product& p_;
  StagedScratch layout_;
  size_t groups_;
  decltype(&dot_native::MultiplyBlock) multiply_;
};

}  // namespace

void MultiplyByDots(const Product& p, const KernelContext& context) {
  const Pairs pairs(p);
  context.pool->ParallelFor(static_cast<int64_t>(pairs.count()),
                            [&](int64_t begin, int64_t end, int thread) {
                              pairs.Multiply(static_cast<size_t>(begin),
                                             static_cast<size_t>(end),
                                             context.PerThread<float>(thread));
                            });
}

void MultiplyByDotsHere(const Product& p, float* scratch) {
  const Pairs pairs(p);
  pairs.Multiply(0, pairs.count(), scratch);
}

#else

// No other CPU has dot products.
void MultiplyByDots(const Product&, const KernelContext&) { TH_CHECK(false); }
void MultiplyByDotsHere(const Product&, float*) { TH_CHECK(false); }

#endif

}  // namespace dot
}  // namespace thimble::kernels
