// SPDX-License-Identifier: Apache-2.0
//
// Pairs of sentences as a source of batches: which come in which step, how a
// step falls into parts, and what the network is fed.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/test_allocations.h"
#include "base/test_folder.h"
#include "text/test_text.h"
#include "thimble/batches.h"
#include "thimble/network.h"
#include "thimble/plan.h"
#include "train/test_text_feeds.h"

namespace thimble::train {
namespace {

using testing::AsFed;
using testing::Fed;
using testing::FeedRoom;
using testing::PartsOf;
using testing::PlanFor;
using testing::StepOf;
using testing::TextModel;
using text::testing::InOrderOfLength;
using text::testing::MakeTestPairs;
using text::testing::TestPair;
using text::testing::WriteTestTokens;

int64_t Padded(const std::vector<Fed>& step) {
  size_t longest = 0;
  for (const Fed& fed : step) {
    longest = std::max({longest, fed.source.size(), fed.labels.size()});
  }
  return static_cast<int64_t>(step.size() * longest);
}

class TextBatches : public ::testing::Test {
 protected:
  TextBatches() {
    text::testing::WriteTestMeaning(folder_);
    Write(400, 30);
  }

  // Pairs of up to `longest` tokens a side, all different enough to be told
  // apart by their tokens.
  void Write(size_t count, unsigned longest) {
    std::mt19937 random(3);
    std::vector<std::pair<int, int>> lengths;
    for (size_t i = 0; i < count; ++i) {
      const auto length = static_cast<int>(1 + random() % longest);
      lengths.emplace_back(
          length, std::clamp(length + static_cast<int>(random() % 7) - 3, 1,
                             static_cast<int>(longest)));
    }
    train_ = InOrderOfLength(MakeTestPairs(lengths));
    WriteTestTokens(folder_.File("train.tokens"), train_);
    Open();
  }
  void Open() {
    auto data = TextData::Open(folder_.path());
    ASSERT_TRUE(data.ok()) << data.status().message();
    data_ = *std::move(data);
  }
  std::unique_ptr<BatchSource> Begun(const Plan& plan, uint64_t seed,
                                     const TextBatchOptions& options) {
    auto source = MakeTextBatches(*data_, options);
    const Status begun = source->Begin(plan, seed);
    EXPECT_TRUE(begun.ok()) << begun.message();
    return source;
  }
  std::string Refusal(const Plan& plan, const TextBatchOptions& options) {
    const Status begun = MakeTextBatches(*data_, options)->Begin(plan, 1);
    EXPECT_EQ(begun.code(), StatusCode::kUsage);
    return begun.message();
  }

  TestFolder folder_;
  std::vector<TestPair> train_;
  std::unique_ptr<TextData> data_;
  const TextBatchOptions options_{.max_tokens = 200};
};

TEST_F(TextBatches, AnEpochHasEveryPairOnceInAnOrderOfItsOwn) {
  const Plan plan = PlanFor(TextModel(200), 50);
  const auto source = Begun(plan, 7, options_);
  std::vector<std::vector<std::vector<Fed>>> epochs;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<Fed> fed;
    auto& steps = epochs.emplace_back();
    for (int64_t step = 0; step < source->StepsPerEpoch(); ++step) {
      steps.push_back(StepOf(*source, plan, epoch, step));
      fed.insert(fed.end(), steps.back().begin(), steps.back().end());
    }
    std::vector<Fed> expected;
    for (const TestPair& pair : train_) expected.push_back(AsFed(pair));
    std::ranges::sort(fed);
    std::ranges::sort(expected);
    EXPECT_EQ(fed, expected);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  const auto other = Begun(plan, 8, options_);
  EXPECT_NE(StepOf(*other, plan, 0, 0), epochs[0][0]);
  // The same batches, though.
  std::ranges::sort(epochs[0]);
  std::ranges::sort(epochs[1]);
  EXPECT_EQ(epochs[0], epochs[1]);
}

// As the batches that the paper's program makes, written down anew: pairs in
// order, until one more would be too much; of 8 and more a multiple of 8.
TEST_F(TextBatches, AreFilledGreedilyByTheLongestSentence) {
  std::vector<std::vector<Fed>> expected;
  for (size_t at = 0; at < train_.size();) {
    std::vector<Fed> batch;
    bool is_cut = false;
    for (size_t i = at; i < train_.size(); ++i) {
      batch.push_back(AsFed(train_[i]));
      if (Padded(batch) <= options_.max_tokens) continue;
      batch.pop_back();
      is_cut = true;
      break;
    }
    if (is_cut && batch.size() >= 8) batch.resize(batch.size() / 8 * 8);
    at += batch.size();
    expected.push_back(batch);
  }
  const Plan plan = PlanFor(TextModel(200), 0);
  const auto source = Begun(plan, 1, options_);
  std::vector<std::vector<Fed>> steps;
  for (int64_t step = 0; step < source->StepsPerEpoch(); ++step) {
    steps.push_back(StepOf(*source, plan, 0, step));
  }
  std::ranges::sort(steps);
  std::ranges::sort(expected);
  EXPECT_EQ(steps, expected);
}

TEST_F(TextBatches, AStepFallsIntoPartsThatFillTheRoom) {
  const Plan plan = PlanFor(TextModel(200), 40);
  const auto source = Begun(plan, 1, options_);
  const Plan whole = PlanFor(TextModel(200), 0);
  const auto undivided = Begun(whole, 1, options_);
  size_t most_parts = 0;
  for (int64_t step = 0; step < source->StepsPerEpoch(); ++step) {
    const auto parts = PartsOf(*source, plan, 0, step);
    most_parts = std::max(most_parts, parts.size());
    std::vector<Fed> all = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) {
      // The next sentence would not have fitted into the part before.
      size_t source_tokens = parts[i][0].source.size();
      size_t target_tokens = parts[i][0].labels.size();
      for (const Fed& fed : parts[i - 1]) {
        source_tokens += fed.source.size();
        target_tokens += fed.labels.size();
      }
      EXPECT_TRUE(source_tokens > 40 || target_tokens > 40);
      all.insert(all.end(), parts[i].begin(), parts[i].end());
    }
    EXPECT_EQ(PartsOf(*undivided, whole, 0, step),
              std::vector<std::vector<Fed>>{all});
  }
  EXPECT_GT(most_parts, 4u);
}

TEST_F(TextBatches, ARunMayBeginWithAnyStepAndPart) {
  const Plan plan = PlanFor(TextModel(200), 50);
  const auto through = Begun(plan, 3, options_);
  std::vector<std::vector<std::vector<Fed>>> steps;
  for (int64_t step = 0; step < through->StepsPerEpoch(); ++step) {
    steps.push_back(PartsOf(*through, plan, 1, step));
  }
  const auto jumping = Begun(plan, 3, options_);
  for (int64_t step = through->StepsPerEpoch() - 1; step >= 0; step -= 3) {
    EXPECT_EQ(PartsOf(*jumping, plan, 1, step),
              steps[static_cast<size_t>(step)]);
    // Again from the beginning of the step.
    FeedRoom room(plan);
    const auto counts = jumping->Fill(0, room.feeds);
    ASSERT_TRUE(counts.ok());
    EXPECT_EQ(room.Sentences(*counts), steps[static_cast<size_t>(step)][0]);
  }
}

TEST_F(TextBatches, RowsBehindTheFilledOnesStayAsTheyAre) {
  const Plan plan = PlanFor(TextModel(200), 0);
  const auto source = Begun(plan, 1, options_);
  const auto size = source->BeginStep(0, 0);
  ASSERT_TRUE(size.ok());
  FeedRoom room(plan);
  const AxisCounts counts = *source->Fill(0, room.feeds);
  for (const FeedBuffer& feed : room.feeds) {
    const auto used = static_cast<size_t>(counts[feed.spec->axis.index()]);
    ASSERT_LT(used, feed.As<int32_t>().size());
    for (const int32_t token : feed.As<int32_t>().subspan(used)) {
      EXPECT_EQ(token, 9) << feed.name;
    }
  }
}

TEST_F(TextBatches, TheTestSplitComesInItsOrder) {
  const auto valid = MakeTestPairs({{9, 4}, {30, 2}, {1, 1}, {12, 30}, {3, 3}});
  WriteTestTokens(folder_.File("valid.tokens"), valid);
  const auto test = MakeTestPairs({{2, 2}});
  WriteTestTokens(folder_.File("test.tokens"), test);
  Open();
  const Plan plan = PlanFor(TextModel(200), 40);
  const auto source = Begun(plan, 1, options_);
  ASSERT_EQ(source->TestParts(), 2);
  const size_t sizes[] = {3, 2};
  // In any order, and again.
  for (const int64_t part : {1, 0, 0, 1}) {
    FeedRoom room(plan);
    const auto counts = source->FillTest(part, room.feeds);
    ASSERT_TRUE(counts.ok());
    const auto sentences = room.Sentences(*counts);
    ASSERT_EQ(sentences.size(), sizes[part]);
    for (size_t i = 0; i < sentences.size(); ++i) {
      EXPECT_EQ(sentences[i], AsFed(valid[static_cast<size_t>(part) * 3 + i]));
    }
  }
  const auto other =
      Begun(plan, 1, {.max_tokens = 200, .test = TextSplit::kTest});
  ASSERT_EQ(other->TestParts(), 1);
  FeedRoom room(plan);
  EXPECT_EQ(room.Sentences(*other->FillTest(0, room.feeds)),
            std::vector<Fed>{AsFed(test[0])});
  // An evaluation needs no training.
  const auto evaluation = MakePlan(TextModel(40), {.training = false});
  ASSERT_TRUE(evaluation.ok());
  EXPECT_EQ(Begun(*evaluation, 1, {})->TestParts(), 2);
}

TEST_F(TextBatches, WithoutATestSplitThereAreNoParts) {
  EXPECT_EQ(Begun(PlanFor(TextModel(200), 0), 1, options_)->TestParts(), 0);
}

TEST_F(TextBatches, AStepAllocatesNothing) {
  WriteTestTokens(folder_.File("valid.tokens"), MakeTestPairs({{9, 4}}));
  Open();
  const Plan plan = PlanFor(TextModel(200), 50);
  const auto source = Begun(plan, 1, options_);
  FeedRoom room(plan);
  const int64_t before = AllocationCount();
  for (int64_t step = 0; step < source->StepsPerEpoch(); ++step) {
    const auto size = source->BeginStep(0, step);
    for (int64_t part = 0; part < size->parts; ++part) {
      ASSERT_TRUE(source->Fill(part, room.feeds).ok());
    }
  }
  ASSERT_TRUE(source->FillTest(0, room.feeds).ok());
  EXPECT_EQ(AllocationCount(), before);
}

// So many batches that only where some of them begin is kept.
TEST_F(TextBatches, LongTextsAreFoundWithAShortIndex) {
  std::vector<std::pair<int, int>> lengths(20'000, {1, 1});
  for (size_t i = 0; i < lengths.size(); ++i) {
    lengths[i].second = 1 + static_cast<int>(i % 5);
  }
  train_ = InOrderOfLength(MakeTestPairs(lengths));
  WriteTestTokens(folder_.File("train.tokens"), train_);
  Open();
  const Plan plan = PlanFor(TextModel(8), 0);
  const auto source = Begun(plan, 1, {.max_tokens = 5});
  // 5 pairs of 1 token, 2 of 2, and 1 of those that are longer.
  ASSERT_EQ(source->StepsPerEpoch(), 4000 / 5 + 4000 / 2 + 3 * 4000);
  std::map<Fed, int> seen, expected;
  for (int64_t step = 0; step < source->StepsPerEpoch(); ++step) {
    for (const Fed& fed : StepOf(*source, plan, 0, step)) ++seen[fed];
  }
  for (const TestPair& pair : train_) ++expected[AsFed(pair)];
  EXPECT_EQ(seen, expected);
}

TEST_F(TextBatches, ANetworkWithoutASourceReadsTheTarget) {
  const Plan plan = PlanFor(TextModel(200, 40, /*has_source=*/false), 40);
  const auto source = Begun(plan, 1, options_);
  size_t tokens = 0;
  for (int64_t step = 0; step < source->StepsPerEpoch(); ++step) {
    for (const Fed& fed : StepOf(*source, plan, 0, step)) {
      tokens += fed.labels.size();
      EXPECT_EQ(fed.labels.back(), kEndToken);
    }
  }
  EXPECT_EQ(static_cast<int64_t>(tokens),
            data_->tokens(TextSplit::kTrain, TextSide::kTarget));
}

TEST_F(TextBatches, WhatDoesNotFitIsRefusedWithWhatToChange) {
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(Refusal(PlanFor(TextModel(200), 20), options_),
      "has a source sentence of 30 tokens, and the plan of net has room for 20 "
      "at once; plan with a PlanOptions::microbatch of at least 30, or prepare "
      "the text with a smaller PrepareOptions::max_length");
  has(Refusal(PlanFor(TextModel(29), 0), {.max_tokens = 30}),
      "plan with a Model::batch of at least 30");
  has(Refusal(PlanFor(TextModel(200), 40), {.max_tokens = 29}),
      "a sentence of 30 tokens to train on, and a batch has at most 29; use a "
      "larger TextBatchOptions::max_tokens");
  has(Refusal(PlanFor(TextModel(100), 0), options_),
      "has up to 200 tokens, and the plan of net has room for 100 at once");
  has(Refusal(PlanFor(TextModel(200, 39), 0), options_),
      "has 40 source tokens, and net knows 39 of them");
  WriteTestTokens(folder_.File("valid.tokens"), MakeTestPairs({{4, 50}}));
  Open();
  has(Refusal(PlanFor(TextModel(200), 40), options_),
      "the valid split of '" + folder_.path() +
          "' has a target sentence of 50 tokens");
  WriteTestTokens(folder_.File("train.tokens"), {});
  Open();
  has(Refusal(PlanFor(TextModel(200), 100), options_),
      "has no sentences to train on");
  Network images("images", 4);
  const auto model =
      images.Finish(images.Linear("fc", images.Flatten(images.Images({})), 3));
  ASSERT_TRUE(model.ok());
  has(Refusal(PlanFor(*model, 0), options_), "for which images has no feeds");
}

// Never bytes outside of the feeds, whatever is in the file by then.
TEST_F(TextBatches, AFileThatIsChangedMeanwhileEndsTheRun) {
  const Plan plan = PlanFor(TextModel(200), 50);
  const auto source = Begun(plan, 1, options_);
  const std::string good = ReadTestFile(folder_.File("train.tokens"));
  std::mt19937 random(5);
  int failures = 0;
  for (int i = 0; i < 60; ++i) {
    std::string bytes = good;
    for (int k = 0; k < 300; ++k) {
      bytes[128 + random() % (bytes.size() - 128)] =
          static_cast<char>(random());
    }
    // In place: the source has the file open.
    std::FILE* file = std::fopen(folder_.File("train.tokens").c_str(), "r+b");
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    std::fclose(file);
    for (int64_t step = 0; step < source->StepsPerEpoch(); ++step) {
      const auto size = source->BeginStep(i, step);
      bool failed = !size.ok();
      for (int64_t part = 0; !failed && part < size->parts; ++part) {
        FeedRoom room(plan);
        failed = !source->Fill(part, room.feeds).ok();
      }
      failures += failed;
    }
  }
  EXPECT_GT(failures, 60);
}

TEST_F(TextBatches, SettingsTellOneTextFromAnother) {
  const auto first = MakeTextBatches(*data_, options_)->Settings();
  EXPECT_EQ(first->at("max-tokens"), "200");
  EXPECT_EQ(first->at("data fingerprint"), data_->fingerprint());
  Write(399, 30);
  EXPECT_NE(
      MakeTextBatches(*data_, options_)->Settings()->at("data fingerprint"),
      first->at("data fingerprint"));
}

}  // namespace
}  // namespace thimble::train
