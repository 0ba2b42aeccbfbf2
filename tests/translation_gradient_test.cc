// SPDX-License-Identifier: Apache-2.0
//
// Gradients of translation models as wholes against complex-step derivatives of
// the scalar interpreter, with dropout: dense ones, and sparse ones where they
// keep something. Source and target are the same tokens here (oracle.h); texts
// of different lengths are translation_test.cc's.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "gradient_check.h"
#include "sparse_pattern.h"
#include "thimble/model.h"

namespace thimble::testing {
namespace {

constexpr int64_t kTokens = 8;

Model SmallModel(const std::string& name) {
  auto model = BuildModel(name, {.batch = kTokens,
                                 .dropout = 0.3,
                                 .source_vocabulary = Batch::kVocabulary,
                                 .target_vocabulary = Batch::kVocabulary});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

TEST(TranslationGradient, IsExact) {
  for (const char* name : {"dynamicconv-8-6-1-1", "dynamicconv-8-4-1-2"}) {
    SCOPED_TRACE(name);
    const Model model = SmallModel(name);
    const ExactPoint point = FindPoint(model, kTokens, 1);
    ExpectGradients(model, point);
    ExpectGradients(model, point, {.recompute = "recursive-1"});
  }
}

TEST(TranslationGradient, IsExactInMicrobatches) {
  const Model model = SmallModel("dynamicconv-8-6-1-1");
  ExpectGradients(model, FindPoint(model, kTokens - 1, 1, kTokens / 2),
                  {.microbatch = kTokens / 2});
}

// Values of a sparse pool's member as those of a dense tensor.
std::vector<float> DenseOf(Session& session, ValueId value) {
  const ValueSpec& spec = session.plan().graph().value(value).spec;
  const auto values = session.Floats(value);
  if (!spec.storage.sparsity.has_value()) {
    return {values.begin(), values.end()};
  }
  const Pattern pattern = PatternOf(session, spec.storage.sparsity->member);
  return Scattered(values, PlacesOf(pattern, spec.shape),
                   static_cast<size_t>(spec.shape.elements()));
}

TEST(TranslationGradient, OfSparseWeightsIsThatOfDenseOnesWithZeros) {
  const Model model = SmallModel("dynamicconv-8-6-1-1");
  for (const WeightBlock block : {WeightBlock{1, 1}, WeightBlock{2, 2}}) {
    for (const int threads : {1, 2}) {
      const auto plan = MakePlan(
          model,
          {.sparse = {.nonzero = 0.5, .block = block}, .threads = threads});
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      // Three embeddings, four matrices of the encoder, eight of the decoder.
      EXPECT_EQ(plan->sparse()->members.size(), 15u);
      auto session = Session::Create(*plan, {.poison = true});
      ASSERT_TRUE(session.ok()) << session.status().message();
      ExactPoint point;
      uint64_t seed = 0;
      do {
        (*session)->Initialize(kReferenceSeed + ++seed);
        point = {};
        for (const ParameterState& p : plan->parameters()) {
          point.parameters.push_back(DenseOf(**session, p.parameter));
        }
        point.batch = RandomBatch(model, kTokens, seed);
      } while (seed < 100 && !SetExact(model, point));
      ASSERT_LT(seed, 100u);
      // The reference's masks are those of its seed.
      (*session)->GoOnAfter(kReferenceSeed, 0);
      EXPECT_NEAR(Differentiate(point.batch, **session).loss, point.exact.loss,
                  point.loss_bound);
      int sparse = 0;
      for (size_t k = 0; k < plan->parameters().size(); ++k) {
        const ParameterState& p = plan->parameters()[k];
        const Value& weight = plan->graph().value(p.parameter);
        std::vector<float> kept(
            static_cast<size_t>(weight.spec.shape.elements()), 1.0f);
        if (weight.spec.storage.sparsity.has_value()) {
          const size_t m = weight.spec.storage.sparsity->member;
          const auto places =
              PlacesOf(PatternOf(**session, m), weight.spec.shape);
          kept = Scattered(std::vector<float>(places.size(), 1.0f), places,
                           kept.size());
          ++sparse;
        }
        const std::vector<float> got = DenseOf(**session, p.gradient);
        std::vector<double> off(got.size()), zeros(got.size());
        for (size_t i = 0; i < got.size(); ++i) {
          off[i] = got[i] -
                   static_cast<double>(kept[i]) * point.exact.gradients[k][i];
        }
        EXPECT_LE(Distance(off, zeros), point.gradient_bounds[k])
            << weight.name;
      }
      EXPECT_EQ(sparse, 15);
    }
  }
}

}  // namespace
}  // namespace thimble::testing
