// SPDX-License-Identifier: Apache-2.0
#include "translate/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "base/test_allocations.h"
#include "translate/test_decoder.h"

namespace thimble::translate {
namespace {

constexpr double kTolerance = 1e-5;  // of sums of a few log-probabilities

std::vector<Tokens> Texts(const std::vector<Translation>& translations) {
  std::vector<Tokens> texts;
  for (const Translation& t : translations) texts.push_back(t.tokens);
  return texts;
}

// By hypotheses as a list, and log-probabilities of full passes.
std::vector<Translation> PlainBeam(TestTranslator& network,
                                   const BeamOptions& options,
                                   const Tokens& source) {
  std::vector<Translation> hypotheses = {{}}, done;
  const auto beam = static_cast<size_t>(options.beam);
  for (int64_t length = 0; done.size() < beam && !hypotheses.empty();
       ++length) {
    std::vector<std::pair<Translation, int32_t>> ways;
    for (const Translation& h : hypotheses) {
      const auto log_p = network.LogProbabilities(source, h.tokens);
      for (int32_t v = 2; v < kTestVocabulary; ++v) {
        if (length == options.max_length && v != options.end) continue;
        ways.push_back(
            {{h.tokens, h.score + log_p[static_cast<size_t>(v)]}, v});
      }
    }
    std::ranges::stable_sort(ways, [](const auto& a, const auto& b) {
      return a.first.score > b.first.score;
    });
    if (ways.size() > 2 * beam) ways.resize(2 * beam);
    hypotheses.clear();
    for (size_t i = 0; i < ways.size(); ++i) {
      auto [way, token] = ways[i];
      if (token == options.end) {
        if (i >= beam || done.size() == beam) continue;
        way.score /=
            std::pow(static_cast<double>(length + 1), options.length_penalty);
        done.push_back(way);
      } else if (hypotheses.size() < beam) {
        way.tokens.push_back(token);
        hypotheses.push_back(way);
      }
    }
  }
  std::ranges::stable_sort(
      done, [](const auto& a, const auto& b) { return a.score > b.score; });
  return done;
}

// Every translation that there can be.
void AddAll(TestTranslator& network, const BeamOptions& options,
            const Tokens& source, const Translation& beginning,
            std::vector<Translation>* all) {
  const auto log_p = network.LogProbabilities(source, beginning.tokens);
  const auto length = static_cast<double>(beginning.tokens.size());
  all->push_back(
      {beginning.tokens, (beginning.score + log_p[2]) /
                             std::pow(length + 1, options.length_penalty)});
  if (std::ssize(beginning.tokens) == options.max_length) return;
  for (int32_t v = 3; v < kTestVocabulary; ++v) {
    Translation longer = {beginning.tokens,
                          beginning.score + log_p[static_cast<size_t>(v)]};
    longer.tokens.push_back(v);
    AddAll(network, options, source, longer, all);
  }
}

void ExpectSame(const std::vector<Translation>& found,
                const std::vector<Translation>& expected) {
  EXPECT_EQ(Texts(found), Texts(expected));
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i].score, expected[i].score, kTolerance);
  }
}

TEST(Decoder, GreedyTakesTheMostProbableTokenEachTime) {
  const BeamOptions options = TestBeam(1, 7);
  TestTranslator network(RoomFor(options, 3, 8)), oracle(RoomForOne());
  const auto found = network.Translate(options, TestSources());
  size_t tokens = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    Tokens expected;
    double sum = 0;
    for (int32_t best = 0; best != 2;) {
      const auto log_p = oracle.LogProbabilities(TestSources()[i], expected);
      best = 2;
      for (int32_t v = 3; v < kTestVocabulary && expected.size() < 7; ++v) {
        if (log_p[static_cast<size_t>(v)] > log_p[static_cast<size_t>(best)]) {
          best = v;
        }
      }
      sum += log_p[static_cast<size_t>(best)];
      if (best != 2) expected.push_back(best);
    }
    ASSERT_EQ(found[i].size(), 1u);
    EXPECT_EQ(found[i][0].tokens, expected);
    EXPECT_NEAR(found[i][0].score,
                sum / static_cast<double>(expected.size() + 1), kTolerance);
    tokens += expected.size();
  }
  EXPECT_GT(tokens, 3u);
}

TEST(Decoder, AWideBeamFindsTheBestOfAllTranslations) {
  for (const double penalty : {0.0, 1.0, 2.0}) {
    BeamOptions options = TestBeam(64, 4);  // 40 are as long as the longest
    options.beam = 128;                     // 121 there are
    options.length_penalty = penalty;
    TestTranslator network(RoomFor(options, 2, 8)), oracle(RoomForOne());
    const auto found = network.Translate(options, TestSources());
    for (size_t i = 0; i < found.size(); ++i) {
      std::vector<Translation> all;
      AddAll(oracle, options, TestSources()[i], {}, &all);
      EXPECT_EQ(all.size(), 121u);
      std::ranges::sort(all, std::ranges::greater(), &Translation::score);
      ExpectSame(found[i], all);
    }
  }
}

TEST(Decoder, NarrowBeamsEndSentencesWithinTheFirstWaysOnly) {
  TestTranslator oracle(RoomForOne());
  std::vector<std::vector<Tokens>> seen;
  for (const int64_t beam : {2, 3, 5}) {
    const BeamOptions options = TestBeam(beam, 6);
    TestTranslator network(RoomFor(options, 4, 8));
    const auto found = network.Translate(options, TestSources());
    for (size_t i = 0; i < found.size(); ++i) {
      ExpectSame(found[i], PlainBeam(oracle, options, TestSources()[i]));
      EXPECT_EQ(found[i].size(), static_cast<size_t>(beam));
    }
    seen.push_back(Texts(found[0]));
  }
  EXPECT_NE(seen[0], seen[1]);
}

// What is found for a sentence depends on nothing else, to the bit.
TEST(Decoder, FindsTheSameInGroupsOfAnySize) {
  for (const int64_t beam : {1, 4}) {
    const BeamOptions options = TestBeam(beam, 12);
    std::vector<Tokens> sources = TestSources();
    for (int i = 0; i < 3; ++i) {
      for (const Tokens& source : TestSources()) sources.push_back(source);
    }
    TestTranslator one(RoomFor(options, 1, 8));
    const auto expected = one.Translate(options, sources);
    for (const int64_t sentences : {2, 5, 32}) {
      TranslatorRoom room = RoomFor(options, sentences, 8);
      TestTranslator many(room, {.threads = 2}, {.poison = true});
      EXPECT_EQ(many.Translate(options, sources), expected) << sentences;
      // Hypotheses of some have to wait for those of others.
      room.target_tokens = std::max(beam * 13, room.hypotheses);
      TestTranslator tight(room);
      EXPECT_EQ(tight.Translate(options, sources), expected) << sentences;
    }
  }
}

TEST(Decoder, FindsTheSameInAnyStorage) {
  SparseWeights sparse;
  sparse.nonzero = 0.5;
  for (const auto& plan :
       {PlanOptions{.precision = Precision::All(DType::kBF16)},
        PlanOptions{.precision = Precision::All(DType::kF16)},
        PlanOptions{.sparse = sparse}}) {
    const BeamOptions options = TestBeam(3, 6);
    TestTranslator network(RoomFor(options, 4, 8), plan),
        oracle(RoomForOne(), plan);
    const auto found = network.Translate(options, TestSources());
    for (size_t i = 0; i < found.size(); ++i) {
      ExpectSame(found[i], PlainBeam(oracle, options, TestSources()[i]));
    }
  }
}

TEST(Decoder, TakesOnlyTokensThatItMay) {
  BeamOptions options = TestBeam(4, 5);
  options.end_word = 4;  // as if the others only filled the vocabulary
  TestTranslator network(RoomFor(options, 4, 8));
  for (const auto& found : network.Translate(options, TestSources())) {
    EXPECT_FALSE(found.empty());
    for (const Translation& t : found) {
      EXPECT_EQ(std::ranges::count(t.tokens, 3), std::ssize(t.tokens));
    }
  }
}

TEST(Decoder, AllocatesNothing) {
  const BeamOptions options = TestBeam(4, 9);
  TestTranslator network(RoomFor(options, 3, 8));
  Decoder decoder(network.session(), options);
  const auto sources = TestSources();
  const std::vector<Decoder::Source> spans(sources.begin(), sources.end());
  size_t done = 0;
  const auto count = [&](size_t, const BeamSearch&) { ++done; };
  ASSERT_TRUE(decoder.Translate(spans, count).ok());
  const int64_t allocations = AllocationCount();
  ASSERT_TRUE(decoder.Translate(spans, count).ok());
  EXPECT_EQ(AllocationCount(), allocations);
  EXPECT_EQ(done, 2 * sources.size());
}

TEST(Decoder, FailsWhereAnswersAreNoNumbersAndGoesOnAfterwards) {
  const BeamOptions options = TestBeam(2, 5);
  TestTranslator network(RoomFor(options, 3, 8));
  const auto expected = network.Translate(options, TestSources());
  Session& session = network.session();
  const ValueId weight = session.plan().parameters()[0].parameter;
  float& broken = session.Floats(weight)[4 * 16];  // of token 4
  const float good = broken;
  broken = std::numeric_limits<float>::quiet_NaN();
  Decoder decoder(session, options);
  const auto sources = TestSources();
  const std::vector<Decoder::Source> spans(sources.begin(), sources.end());
  const Status status =
      decoder.Translate(spans, [](size_t, const BeamSearch&) {});
  EXPECT_EQ(status.code(), StatusCode::kFailed);
  broken = good;
  EXPECT_TRUE(decoder.Translate(spans, [](size_t, const BeamSearch&) {}).ok());
  EXPECT_EQ(network.Translate(options, TestSources()), expected);
}

// The network of a search is the one that was trained.
TEST(TranslatorNetwork, GivesTheProbabilitiesOfTheModel) {
  ModelOptions options{.batch = 16,
                       .source_vocabulary = kTestSourceVocabulary,
                       .target_vocabulary = kTestVocabulary};
  const auto model = BuildModel(kTestModel, options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto plan = MakePlan(*model, {.training = false});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const auto session = *Session::Create(*plan, {});
  session->Initialize(/*seed=*/3);
  TestTranslator network(RoomForOne());
  const Tokens source = {4, 8, 5, 2}, labels = {5, 3, 4, 4, 2};
  const auto feed = [&](const char* name, const Tokens& values) {
    std::ranges::copy(values, session->EvaluateFeed<int32_t>(name).begin());
  };
  feed("source", source);
  feed("source_ends", {4});
  feed("target", {2, 5, 3, 4, 4});
  feed("target_ends", {5});
  feed("labels", labels);
  const PassResult result = session->Evaluate(
      AxisParts{AxisPart{0, 5, 5}, AxisPart{0, 1, 1}, AxisPart{0, 4, 4}});
  double sum = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const Tokens beginning(labels.begin(),
                           labels.begin() + static_cast<ptrdiff_t>(i));
    sum -= network.LogProbabilities(source,
                                    beginning)[static_cast<size_t>(labels[i])];
  }
  EXPECT_NEAR(sum, result.metrics[0], kTolerance);
  EXPECT_FALSE(BuildTranslator("mlp", {}, {}).ok());
}

}  // namespace
}  // namespace thimble::translate
