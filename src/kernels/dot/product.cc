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

using matmul::Product;

bool IsDotProduct(const Product& product) {
  return ActiveDotForm() != DotForm::kNone &&
         product.a.dtype() == DType::kBF16 &&
         product.b.dtype() == DType::kBF16 &&
         (product.c.dtype() == DType::kBF16 ||
          product.c.dtype() == DType::kF32);
}

#if defined(__x86_64__)

namespace {

// Of A, for a block's rows: half of a second-level cache.
constexpr size_t kCachedTerms = size_t{256} * 1024;

// C as pairs (block of columns, group of rows), in the order in which they are
// worked on. Where a block's rows of A stay in the second-level cache, they go
// through all blocks of columns before the next ones do; else the blocks of
// columns are outermost.
class Pairs {
 public:
  explicit Pairs(const Product& p)
      : p_(p),
        layout_(p),
        columns_((p.cols + layout_.columns - 1) / layout_.columns),
        groups_((p.rows + kGroupRows - 1) / kGroupRows),
        multiply_(THIMBLE_DOT_TABLE(MultiplyBlock).Get()) {
    if (layout_.rows * p.depth <= kCachedTerms) {
      span_ = layout_.rows / kGroupRows;
    };
  }

  size_t count() const { return columns_ * groups_; }

  // Pairs [begin, end).
  void Multiply(size_t begin, size_t end, float* scratch) const {
    const FlushDenormals flush;
    while (begin < end) {
      ProductBlock block, next = {};
      begin += BlockAt(begin, end, block);
      if (begin < end) BlockAt(begin, end, next);
      multiply_(p_, layout_, block, next, scratch);
    }
  }

 private:
  // The block that begins at a pair; returns how many pairs it has.
  size_t BlockAt(size_t pair, size_t end, ProductBlock& block) const {
    const size_t span = std::min(span_, groups_);
    const size_t first = pair / (columns_ * span) * span;
    const size_t groups = std::min(groups_ - first, span);
    const size_t in_span = pair - first * columns_;
    const size_t count = std::min(
        {groups - in_span % groups, end - pair, layout_.rows / kGroupRows});
    block.first_row = (first + in_span % groups) * kGroupRows;
    block.rows = std::min(count * kGroupRows, p_.rows - block.first_row);
    block.first_column = in_span / groups * layout_.columns;
    block.columns = std::min(layout_.columns, p_.cols - block.first_column);
    return count;
  }

  const Product& p_;
  ProductLayout layout_;
  size_t columns_;
  size_t groups_;
  size_t span_ = SIZE_MAX;  // groups that go through all columns together
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
