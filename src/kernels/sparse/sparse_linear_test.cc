// SPDX-License-Identifier: Apache-2.0
#include "kernels/sparse/sparse_linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/matmul/reference.h"
#include "kernels/sparse/test_sparse.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::ForEachTarget;
using testing::kDensities;
using testing::kFloatTypes;
using testing::Magnitudes;
using testing::SparsePattern;
using testing::SparseWeight;
using testing::StoredTensor;
using testing::SumErrorBound;
using testing::TestContext;

struct Case {
  LinearShape shape;
  int64_t rows;
};
// Around the rows and chunks at a time; rows and columns of the weight that
// have more entries than are unpacked at once.
const Case kCases[] = {
    {{1, 1, WeightBlock{1, 1}}, 1},     {{10, 12, WeightBlock{2, 2}}, 3},
    {{70, 33, WeightBlock{1, 1}}, 130}, {{128, 66, WeightBlock{2, 2}}, 260},
    {{9, 40, WeightBlock{4, 3}}, 17},   {{6000, 6, WeightBlock{1, 1}}, 5},
    {{4, 5000, WeightBlock{2, 1}}, 20},
};

// Calls check(case, types of the first two tensors and of the result, pattern).
template <typename Check>
void ForEachCase(const Check& check) {
  size_t turn = 0;
  for (const Case& c : kCases) {
    for (const DType dtype : kFloatTypes) {
      for (const IndexCodec codec :
           {IndexCodec::kPacked, IndexCodec::kBitmap}) {
        const double density = kDensities[turn++ % std::size(kDensities)];
        SCOPED_TRACE(::testing::Message()
                     << c.rows << " rows " << c.shape.in << " -> "
                     << c.shape.out << " " << DTypeName(dtype) << " density "
                     << density << " " << IndexCodecName(codec));
        const SparsePattern pattern(c.shape.out, c.shape.in, 1, *c.shape.blocks,
                                    density, codec, 3);
        // Types of inputs and result differ in every second case.
        const DType other = kFloatTypes[turn % std::size(kFloatTypes)];
        check(c, dtype, other, pattern);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
    ++turn;
  }
}

using Run = void (*)(const LinearShape&, int64_t, const ConstTensor&,
                     const ConstTensor&, const LinearTarget&,
                     const KernelContext&);
using Definition = void (*)(const LinearShape&, int64_t, const double*,
                            const double*, double*);

// The forward pass, or the gradient of the input.
void CheckMap(const Case& c, DType x_type, DType y_type,
              const SparsePattern& pattern, bool forward) {
  const LinearShape& s = c.shape;
  const int64_t from = forward ? s.in : s.out, to = forward ? s.out : s.in;
  const Run run = forward ? &LinearForward : &LinearGradInput;
  const Definition definition = forward ? &reference::LinearForward<double>
                                        : &reference::LinearGradInput<double>;
  const auto n = static_cast<size_t>(c.rows * to);
  StoredTensor x(x_type, static_cast<size_t>(c.rows * from), 1);
  SparseWeight w(pattern, y_type, static_cast<size_t>(s.in * s.out), 2);
  StoredTensor addend(y_type, n, 4);
  std::vector<double> want(n), size(n);
  definition(s, c.rows, x.Wide().data(), w.Wide().data(), want.data());
  definition(s, c.rows, Magnitudes(x.Wide()).data(),
             Magnitudes(w.Wide()).data(), size.data());
  const Workspace workspace =
      forward ? LinearForwardWorkspace(s) : LinearGradInputWorkspace(s);
  ForEachTarget([&] {
    for (const bool adds : {false, true}) {
      std::vector<uint8_t> first;
      for (int threads : {1, 2, 3}) {
        const TestContext context(threads, workspace);
        StoredTensor y(y_type, n, 4);
        LinearTarget target{.to = y.tensor()};
        // Once in place, once from elsewhere.
        if (adds) target.addend = threads == 1 ? addend.tensor() : y.tensor();
        run(s, c.rows, x.tensor(), w.tensor(), target, *context);
        for (size_t i = 0; i < n; ++i) {
          const double before = adds ? addend.Get(i) : 0.0;
          const double bound =
              SumErrorBound(from + 1, size[i] + std::abs(before));
          ASSERT_NEAR(
              y.Get(i), want[i] + before,
              bound + y.RoundingBound(std::abs(want[i] + before) + bound))
              << "element " << i << " threads=" << threads;
        }
        if (threads == 1) first = y.Bytes();
        ASSERT_EQ(y.Bytes(), first);
      }
    }
  });
}

TEST(SparseLinear, ForwardMatchesReference) {
  ForEachCase(
      [](const Case& c, DType x, DType y, const SparsePattern& pattern) {
        CheckMap(c, x, y, pattern, true);
      });
}

TEST(SparseLinear, GradInputMatchesReference) {
  ForEachCase(
      [](const Case& c, DType x, DType y, const SparsePattern& pattern) {
        CheckMap(c, x, y, pattern, false);
      });
}

// Keeps what it is handed.
class Keep final : public PieceSink {
 public:
  explicit Keep(size_t n) : values_(n, NAN) {}
  void Take(int64_t first, int64_t n, float* sums) const override {
    const auto end = static_cast<int64_t>(values_.size());
    EXPECT_EQ(first % ConstTensor::kBlock, 0);
    EXPECT_TRUE(n % ConstTensor::kBlock == 0 || first + n == end);
    for (int64_t i = 0; i < n; ++i) {
      values_[static_cast<size_t>(first + i)] = sums[i];
    }
  }
  const std::vector<float>& values() const { return values_; }

 private:
  mutable std::vector<float> values_;
};

void CheckGradWeight(const Case& c, DType x_type, DType w_type,
                     const SparsePattern& pattern) {
  const LinearShape& s = c.shape;
  const std::vector<size_t>& places = pattern.places();
  StoredTensor x(x_type, static_cast<size_t>(c.rows * s.in), 1);
  StoredTensor grad_y(x_type, static_cast<size_t>(c.rows * s.out), 2);
  StoredTensor addend(w_type, places.size(), 3);
  std::vector<double> want(static_cast<size_t>(s.in * s.out)),
      size(want.size());
  reference::LinearGradWeight(s, c.rows, x.Wide().data(), grad_y.Wide().data(),
                              want.data());
  reference::LinearGradWeight(s, c.rows, Magnitudes(x.Wide()).data(),
                              Magnitudes(grad_y.Wide()).data(), size.data());
  ForEachTarget([&] {
    std::vector<float> first;
    for (int threads : {1, 2, 3}) {
      const TestContext context(threads, LinearGradWeightWorkspace(s));
      StoredTensor got(w_type, places.size(), 3);
      LinearGradWeight(s, c.rows, x.tensor(), grad_y.tensor(),
                       {.to = got.tensor(),
                        .addend = threads == 1 ? addend.tensor() : got.tensor(),
                        .pattern = &pattern.pattern()},
                       *context);
      for (size_t i = 0; i < places.size(); ++i) {
        const double value = want[places[i]] + addend.Get(i);
        const double bound = SumErrorBound(
            c.rows + 1, size[places[i]] + std::abs(addend.Get(i)));
        ASSERT_NEAR(got.Get(i), value,
                    bound + got.RoundingBound(std::abs(value) + bound));
      }
      const TestContext pieces(threads, LinearGradPiecesWorkspace(s));
      StoredTensor stored(DType::kF32, places.size());
      const Keep keep(places.size());
      LinearGradWeight(s, c.rows, x.tensor(), grad_y.tensor(),
                       {.to = stored.tensor(), .pattern = &pattern.pattern()},
                       *context);
      LinearGradWeight(s, c.rows, x.tensor(), grad_y.tensor(),
                       {.to = Tensor::None(),
                        .pieces = &keep,
                        .pattern = &pattern.pattern()},
                       *pieces);
      ASSERT_EQ(keep.values(), stored.Floats());
      if (threads == 1) first = stored.Floats();
      ASSERT_EQ(stored.Floats(), first);
    }
  });
}

TEST(SparseLinear, GradWeightMatchesReference) { ForEachCase(CheckGradWeight); }

TEST(SparseLinear, WorkspaceStaysBelowItsBound) {
  for (const LinearShape& s : {LinearShape{512, 512, WeightBlock{1, 1}},
                               {1024, 4096, WeightBlock{2, 2}},
                               {4096, 1024, WeightBlock{1, 1}}}) {
    for (const Workspace& workspace :
         {LinearForwardWorkspace(s), LinearGradInputWorkspace(s),
          LinearGradWeightWorkspace(s), LinearGradPiecesWorkspace(s)}) {
      EXPECT_LE(workspace.per_thread, size_t{128 * 1024});
    }
  }
}

}  // namespace
}  // namespace thimble::kernels
