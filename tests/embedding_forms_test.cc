// SPDX-License-Identifier: Apache-2.0
//
// A network that begins with an embedding, in the forms that a plan may give to
// its weight and to the weight's gradient: each gives the bits of the ordinary
// one.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "random_point.h"
#include "sparse_pattern.h"
#include "stored_floats.h"
#include "thimble/network.h"
#include "thimble/plan.h"
#include "thimble/session.h"

namespace thimble::testing {
namespace {

constexpr int64_t kTokens = 24;
// More than the tokens of a batch: most rows of the weight do not occur.
constexpr int64_t kVocabulary = 100;

Model TextModel() {
  Network net("text", kTokens, "tokens");
  ValueId x = net.Embedding("embed", net.TextInput("text"), kVocabulary, 48);
  x = net.LayerNorm("norm", x);
  auto model = net.Finish(net.Linear("head", x, 5));
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

// A plan and its session, with the weights of seed 1.
class Planned {
 public:
  explicit Planned(const PlanOptions& options) {
    auto plan = MakePlan(TextModel(), options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    const Status valid = ValidatePlan(*plan);
    EXPECT_TRUE(valid.ok()) << valid.message();
    plan_ = std::make_unique<Plan>(*std::move(plan));
    auto session = Session::Create(*plan_, {.poison = true});
    EXPECT_TRUE(session.ok()) << session.status().message();
    session_ = *std::move(session);
    session_->Initialize(1);
  }
  Session& operator*() { return *session_; }
  Session* operator->() { return session_.get(); }
  std::span<const ParameterState> parameters() const {
    return plan_->parameters();
  }
  const ValueSpec& SpecOf(ValueId value) const {
    return plan_->graph().value(value).spec;
  }

  // All elements of a value, zeros where it keeps none.
  std::vector<float> Dense(ValueId value) {
    const ValueSpec& spec = SpecOf(value);
    if (!spec.storage.sparsity.has_value()) return ReadStored(*session_, value);
    const Pattern pattern = PatternOf(*session_, spec.storage.sparsity->member);
    std::vector<float> values(static_cast<size_t>(pattern.values()));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] =
          StoredAt(spec.storage.dtype, session_->Bytes(value).data(), i);
    }
    return Scattered(values, PlacesOf(pattern, spec.shape),
                     static_cast<size_t>(spec.shape.elements()));
  }

 private:
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Session> session_;
};

// The same step of a network whose embedding is sparse, and of one in which it
// is dense with zeros in the same places.
void ExpectDenseBits(PlanOptions options) {
  Planned sparse(options);
  const SparseWeights how = options.sparse;
  options.sparse = {};
  Planned dense(options);
  const size_t parameters = dense.parameters().size();
  for (size_t k = 0; k < parameters; ++k) {
    WriteStored(sparse.Dense(sparse.parameters()[k].parameter), *dense,
                dense.parameters()[k].parameter);
  }
  const Batch batch = RandomBatch(TextModel(), kTokens - 1, 1);
  EXPECT_EQ(Differentiate(batch, *sparse).loss,
            Differentiate(batch, *dense).loss);
  size_t kept = 0, zeros = 0;
  for (size_t k = 0; k < parameters; ++k) {
    const ParameterState& p = sparse.parameters()[k];
    std::vector<float> want = dense.Dense(dense.parameters()[k].gradient);
    const ValueSpec& spec = sparse.SpecOf(p.parameter);
    if (spec.storage.sparsity.has_value()) {
      const size_t m = spec.storage.sparsity->member;
      const auto places = PlacesOf(PatternOf(*sparse, m), spec.shape);
      std::vector<float> values;
      for (size_t place : places) {
        values.push_back(want[place]);
        zeros += want[place] == 0 ? 1 : 0;
      }
      kept += places.size();
      want = Scattered(values, places, want.size());
    }
    EXPECT_EQ(sparse.Dense(p.gradient), want) << k;
  }
  EXPECT_GT(kept, 500u);
  EXPECT_LT(zeros, kept);
}

TEST(EmbeddingForms, SparseOnesGiveTheBitsOfDenseOnes) {
  for (const WeightBlock& block : {WeightBlock{1, 1}, WeightBlock{2, 2}}) {
    for (const IndexCodec codec : {IndexCodec::kPacked, IndexCodec::kBitmap}) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const int64_t microbatch : {kTokens, kTokens / 3}) {
          SCOPED_TRACE(::testing::Message()
                       << block.outputs << " " << IndexCodecName(codec) << " "
                       << DTypeName(dtype) << " " << microbatch);
          ExpectDenseBits({.precision = Precision::All(dtype),
                           .sparse = {.nonzero = 0.3,
                                      .block = block,
                                      .index = codec,
                                      .weights = {"embed.weight"}},
                           .threads = 2,
                           .microbatch = microbatch});
        }
      }
    }
  }
}

// Weights after some steps, as bytes.
std::vector<std::vector<float>> Trained(const PlanOptions& options) {
  Planned planned(options);
  for (uint64_t step = 0; step < 3; ++step) {
    constexpr float kRate = 0.05f;
    planned->BeginStep(kRate, kRate);
    Differentiate(RandomBatch(TextModel(), kTokens, step), *planned);
    planned->Update(kRate);
  }
  std::vector<std::vector<float>> weights;
  for (const ParameterState& p : planned.parameters()) {
    weights.push_back(planned.Dense(p.parameter));
  }
  return weights;
}

const SparseWeights kSparse = {.nonzero = 0.4, .weights = {"embed.weight"}};

// The order of all sums is the same, so the bits are.
TEST(EmbeddingForms, WithoutGradientsAStepIsTheOrdinaryOne) {
  for (const SparseWeights& sparse : {SparseWeights{}, kSparse}) {
    for (const bool nesterov : {false, true}) {
      PlanOptions options = {
          .optimizer = Sgd({.weight_decay = 1e-3f, .nesterov = nesterov}),
          .sparse = sparse,
          .threads = 2};
      const auto weights = Trained(options);
      options.precision.keeps_gradients = false;
      EXPECT_EQ(Trained(options), weights);
    }
  }
}

TEST(EmbeddingForms, GradientsInBytesAreTheSameForThreadsAndRecomputation) {
  for (const SparseWeights& sparse : {SparseWeights{}, kSparse}) {
    PlanOptions options = {
        .optimizer = Adam(), .sparse = sparse, .microbatch = kTokens / 2};
    const auto exact = Trained(options);
    options.precision.gradients = U8InBlocks();
    const auto weights = Trained(options);
    EXPECT_NE(weights, exact);
    options.threads = 3;
    options.recompute = "every-1";
    EXPECT_EQ(Trained(options), weights);
  }
}

}  // namespace
}  // namespace thimble::testing
