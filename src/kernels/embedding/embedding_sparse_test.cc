// SPDX-License-Identifier: Apache-2.0
//
// Embeddings with sparse weights, and gradients in pieces: both give the bits
// that a dense, stored one does.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

#include "kernels/embedding/embedding.h"
#include "kernels/embedding/test_text.h"
#include "kernels/sparse/test_sparse.h"
#include "kernels/stored_tensor.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

using testing::ForEachTarget;
using testing::kDensities;
using testing::kFloatTypes;
using testing::kScale;
using testing::SparsePattern;
using testing::SparseWeight;
using testing::StoredTensor;
using testing::TestContext;
using testing::TestText;

struct Case {
  EmbeddingShape shape;
  int64_t rows;
};

// With more values than a piece holds; blocks that a piece cuts, and blocks
// with more values than are read at a time.
const Case kCases[] = {
    {{1, 4, WeightBlock{1, 1}}, 3},     {{12, 10, WeightBlock{2, 2}}, 20},
    {{300, 38, WeightBlock{1, 1}}, 90}, {{400, 130, WeightBlock{2, 2}}, 200},
    {{90, 64, WeightBlock{3, 4}}, 25},  {{600, 36, WeightBlock{2, 1}}, 70},
    {{6, 6000, WeightBlock{1, 1}}, 5},  {{64, 96, WeightBlock{32, 32}}, 9},
};

// Calls check(case, type, another one, pattern).
template <typename Check>
void ForEachCase(const Check& check) {
  size_t turn = 0;
  for (const Case& c : kCases) {
    for (const DType dtype : kFloatTypes) {
      for (const IndexCodec codec :
           {IndexCodec::kPacked, IndexCodec::kBitmap}) {
        const double density = kDensities[turn++ % std::size(kDensities)];
        SCOPED_TRACE(::testing::Message()
                     << c.rows << " rows of [" << c.shape.vocabulary << ", "
                     << c.shape.features << "] " << DTypeName(dtype)
                     << " density " << density << " " << IndexCodecName(codec));
        const SparsePattern pattern(c.shape.vocabulary, c.shape.features, 1,
                                    *c.shape.blocks, density, codec, 3);
        check(c, dtype, kFloatTypes[turn % 3], pattern);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
    ++turn;
  }
}

EmbeddingShape DenseOf(EmbeddingShape shape) {
  shape.blocks.reset();
  return shape;
}

TEST(SparseEmbedding, IsThatOfTheDenseWeight) {
  ForEachCase([](const Case& c, DType w_type, DType y_type,
                 const SparsePattern& pattern) {
    const TestText text(c.shape.vocabulary, c.rows, 5);
    const Sentences sentences = text.sentences();
    const auto size =
        static_cast<size_t>(c.shape.vocabulary * c.shape.features);
    SparseWeight w(pattern, w_type, size, 2);
    StoredTensor dense(w_type, size);
    for (size_t i = 0; i < size; ++i) {
      dense.Set(i, static_cast<float>(w.Wide()[i]));
    }
    const auto run = [&](const EmbeddingShape& shape, const ConstTensor& from,
                         const Sentences* at, int threads) {
      StoredTensor y(y_type, static_cast<size_t>(c.rows * c.shape.features), 4);
      const TestContext context(threads, EmbeddingWorkspace(shape));
      Embedding(shape, c.rows, kScale, text.tokens.data(), from, at, y.tensor(),
                *context);
      return y.Bytes();
    };
    ForEachTarget([&] {
      for (const Sentences* at :
           {&sentences, static_cast<const Sentences*>(nullptr)}) {
        const auto want = run(DenseOf(c.shape), dense.tensor(), at, 1);
        for (const int threads : {1, 2, 3}) {
          ASSERT_EQ(run(c.shape, w.tensor(), at, threads), want);
        }
      }
    });
  });
}

// Values of a dense gradient as the kernel stores them.
StoredTensor& DenseGrad(const Case& c, const TestText& text,
                        StoredTensor& grad_y, bool accumulate,
                        StoredTensor& grad_w) {
  const EmbeddingShape shape = DenseOf(c.shape);
  const TestContext context(1, EmbeddingGradWorkspace(shape, c.rows));
  EmbeddingGrad(shape, c.rows, kScale, text.tokens.data(), grad_y.tensor(),
                {.to = grad_w.tensor(), .accumulate = accumulate}, *context);
  return grad_w;
}

TEST(SparseEmbedding, GradientIsWhatIsKeptOfTheDenseOne) {
  ForEachCase([](const Case& c, DType y_type, DType w_type,
                 const SparsePattern& pattern) {
    const TestText text(c.shape.vocabulary, c.rows, 5);
    const auto size =
        static_cast<size_t>(c.shape.vocabulary * c.shape.features);
    const std::vector<size_t>& places = pattern.places();
    StoredTensor grad_y(y_type, static_cast<size_t>(c.rows * c.shape.features),
                        1);
    ForEachTarget([&] {
      for (const bool accumulate : {false, true}) {
        StoredTensor dense(w_type, size, 6);
        StoredTensor before(w_type, places.size());
        for (size_t i = 0; i < places.size(); ++i) {
          before.Set(i, static_cast<float>(dense.Get(places[i])));
        }
        DenseGrad(c, text, grad_y, accumulate, dense);
        for (const int threads : {1, 2, 3}) {
          StoredTensor grad_w(w_type, places.size());
          grad_w.CopyFrom(before);
          const TestContext context(threads,
                                    EmbeddingGradWorkspace(c.shape, c.rows));
          EmbeddingGrad(c.shape, c.rows, kScale, text.tokens.data(),
                        grad_y.tensor(),
                        {.to = grad_w.tensor(),
                         .accumulate = accumulate,
                         .pattern = &pattern.pattern()},
                        *context);
          for (size_t i = 0; i < places.size(); ++i) {
            ASSERT_EQ(grad_w.Get(i), dense.Get(places[i])) << "value " << i;
          }
        }
      }
    });
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
      EXPECT_TRUE(std::isnan(values_[static_cast<size_t>(first + i)]));
      values_[static_cast<size_t>(first + i)] = sums[i];
      sums[i] = NAN;
    }
  }
  const std::vector<float>& values() const { return values_; }

 private:
  mutable std::vector<float> values_;
};

void CheckPieces(const Case& c, const TestText& text, StoredTensor& grad_y,
                 StoredTensor& want, const SparsePattern* pattern) {
  const EmbeddingShape shape = pattern != nullptr ? c.shape : DenseOf(c.shape);
  const size_t n = pattern != nullptr ? pattern->places().size() : want.size();
  for (const int threads : {1, 2, 3}) {
    const Keep keep(n);
    const TestContext context(threads,
                              EmbeddingGradPiecesWorkspace(shape, c.rows));
    EmbeddingGrad(
        shape, c.rows, kScale, text.tokens.data(), grad_y.tensor(),
        {.to = Tensor::None(),
         .pieces = &keep,
         .pattern = pattern != nullptr ? &pattern->pattern() : nullptr},
        *context);
    for (size_t i = 0; i < n; ++i) {
      const size_t place = pattern != nullptr ? pattern->places()[i] : i;
      ASSERT_EQ(keep.values()[i], want.Get(place)) << "value " << i;
    }
  }
}

TEST(EmbeddingGrad, InPiecesIsTheStoredOne) {
  ForEachCase(
      [](const Case& c, DType y_type, DType, const SparsePattern& pattern) {
        const TestText text(c.shape.vocabulary, c.rows, 5);
        StoredTensor grad_y(y_type,
                            static_cast<size_t>(c.rows * c.shape.features), 1);
        ForEachTarget([&] {
          StoredTensor want(
              DType::kF32,
              static_cast<size_t>(c.shape.vocabulary * c.shape.features), 6);
          DenseGrad(c, text, grad_y, false, want);
          CheckPieces(c, text, grad_y, want, nullptr);
          CheckPieces(c, text, grad_y, want, &pattern);
        });
      });
}

}  // namespace
}  // namespace thimble::kernels
