// SPDX-License-Identifier: Apache-2.0
//
// For tests of searches: a small translation model with weights by chance, and
// what it says of the beginning of a translation, one at a time by full passes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "thimble/model.h"
#include "thimble/plan.h"
#include "thimble/session.h"
#include "translate/decoder.h"

namespace thimble::translate {

inline constexpr char kTestModel[] = "dynamicconv-16-24-2-2";
inline constexpr int64_t kTestSourceVocabulary = 9;
inline constexpr int64_t kTestVocabulary = 6;

using Tokens = std::vector<int32_t>;

struct Translation {
  Tokens tokens;
  double score = 0;
  friend bool operator==(const Translation&, const Translation&) = default;
};

inline BeamOptions TestBeam(int64_t beam, int64_t max_length) {
  return {.beam = beam,
          .max_length = max_length,
          .vocabulary = kTestVocabulary,
          .end_word = kTestVocabulary};
}

inline std::vector<Tokens> TestSources() {
  return {{4, 5, 2},          {8, 3, 2}, {7, 2},    {4, 4, 5, 2},
          {6, 3, 3, 3, 8, 2}, {2},       {5, 7, 2}, {8, 7, 6, 5, 4, 2}};
}

class TestTranslator {
 public:
  explicit TestTranslator(const TranslatorRoom& room,
                          const PlanOptions& options = {},
                          const SessionOptions& session = {}) {
    ModelOptions model_options{.source_vocabulary = kTestSourceVocabulary,
                               .target_vocabulary = kTestVocabulary};
    auto model = BuildTranslator(kTestModel, model_options, room);
    EXPECT_TRUE(model.ok()) << model.status().message();
    PlanOptions evaluates = options;
    evaluates.training = false;
    auto plan = MakePlan(*model, evaluates);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_TRUE(ValidatePlan(*plan).ok());
    plan_ = std::make_unique<Plan>(*std::move(plan));
    session_ = *Session::Create(*plan_, session);
    session_->Initialize(/*seed=*/3);
  }

  Session& session() { return *session_; }

  std::vector<std::vector<Translation>> Translate(
      const BeamOptions& options, const std::vector<Tokens>& sources) {
    Decoder decoder(*session_, options);
    const std::vector<Decoder::Source> spans(sources.begin(), sources.end());
    std::vector<std::vector<Translation>> all(sources.size());
    const Status status =
        decoder.Translate(spans, [&](size_t i, const BeamSearch& search) {
          EXPECT_TRUE(all[i].empty());
          for (const BeamSearch::Found& found : search.found()) {
            const auto tokens = search.TokensOf(found);
            all[i].push_back({{tokens.begin(), tokens.end()}, found.score});
          }
        });
    EXPECT_TRUE(status.ok()) << status.message();
    return all;
  }

  // Of each token behind `beginning`, by a pass over this sentence alone.
  std::vector<double> LogProbabilities(const Tokens& source,
                                       const Tokens& beginning) {
    Tokens target = {2};
    target.insert(target.end(), beginning.begin(), beginning.end());
    const auto feed = [&](const char* name, const Tokens& values) {
      std::ranges::copy(values, session_->EvaluateFeed<int32_t>(name).begin());
    };
    feed("source", source);
    feed("source_ends", {static_cast<int32_t>(source.size())});
    feed("target", target);
    feed("target_ends", {static_cast<int32_t>(target.size())});
    feed("target_of_source_ends", {static_cast<int32_t>(target.size())});
    const auto part = [](size_t n) {
      const auto count = static_cast<int64_t>(n);
      return AxisPart{0, count, count};
    };
    session_->Evaluate(
        AxisParts{part(target.size()), part(1), part(1), part(source.size())});
    const auto logits =
        session_->Floats(plan_->evaluate_ends().outputs[1].value);
    double sum = 0;
    for (int64_t v = 0; v < kTestVocabulary; ++v) {
      sum += std::exp(static_cast<double>(logits[static_cast<size_t>(v)]));
    }
    std::vector<double> all;
    for (int64_t v = 0; v < kTestVocabulary; ++v) {
      all.push_back(static_cast<double>(logits[static_cast<size_t>(v)]) -
                    std::log(sum));
    }
    return all;
  }

 private:
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Session> session_;
};

// Room for one sentence of any length that is tested, and one beginning.
inline TranslatorRoom RoomForOne() {
  return {.sentences = 1,
          .source_tokens = 16,
          .hypotheses = 1,
          .target_tokens = 32};
}

}  // namespace thimble::translate
