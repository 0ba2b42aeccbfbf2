// SPDX-License-Identifier: Apache-2.0
//
// From the folder of a run to lines of text.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "base/test_folder.h"
#include "text/bleu.h"
#include "thimble/translate.h"
#include "thimble/weights_file.h"
#include "translate/test_run.h"

namespace thimble::translate {
namespace {

class TranslatorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    text_ = folder_.File("text");
    run_ = folder_.File("run");
    ASSERT_NO_FATAL_FAILURE(PrepareTestText(text_));
  }

  std::unique_ptr<Translator> Open(const TranslateOptions& options = {}) {
    auto opened = Translator::Open(run_, options);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return *std::move(opened);
  }
  void ExpectRefused(const TranslateOptions& options, StatusCode code,
                     const std::string& says) {
    const auto opened = Translator::Open(run_, options);
    ASSERT_FALSE(opened.ok()) << says;
    EXPECT_EQ(opened.status().code(), code) << opened.status().message();
    EXPECT_NE(opened.status().message().find(says), std::string::npos)
        << opened.status().message();
  }
  // What comes out of `text`, and whether that was all.
  std::string Translate(Translator& translator, const std::string& text,
                        Status* status = nullptr) {
    WriteTestFile(folder_.File("in"), text);
    const int in = open(folder_.File("in").c_str(), O_RDONLY);
    const int out =
        open(folder_.File("out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const auto done = translator.Translate(in, out);
    close(in);
    close(out);
    EXPECT_TRUE(done.ok() || status != nullptr) << done.status().message();
    if (status != nullptr) *status = done.status();
    return ReadTestFile(folder_.File("out"));
  }
  static std::string Sources() {
    std::string text;
    for (const auto& [source, target] : TestSentences()) text += source + "\n";
    return text;
  }

  TestFolder folder_;
  std::string text_, run_;
};

TEST_F(TranslatorTest, LearnsAndTranslates) {
  TrainTestRun(text_, run_, {}, 60);
  // What a run leaves is all that is needed.
  std::rename(text_.c_str(), folder_.File("gone").c_str());
  for (int64_t beam : {1, 4}) {
    const auto translator = Open({.beam = beam, .max_length = 20});
    EXPECT_EQ(Translate(*translator, "a\n\nb c\nd d\n  \nc"),
              "A\n\nC B\nD D\n\nC\n");
  }
  const auto best = Open({.beam = 3, .max_length = 20, .nbest = 2});
  const std::string lines = Translate(*best, "\nb c\n");
  EXPECT_TRUE(lines.starts_with("1\t0.0000\t\n2\t-")) << lines;
  EXPECT_NE(lines.find("\tC B\n"), std::string::npos) << lines;
  EXPECT_EQ(std::ranges::count(lines, '\n'), 3);
}

TEST_F(TranslatorTest, FindsTheSameAtAnyBatchBudgetAndThreads) {
  TrainTestRun(text_, run_);
  TranslateOptions options{
      .beam = 2, .max_length = 12, .batch = 8, .max_source = 20};
  const auto many = Open(options);
  const std::string expected = Translate(*many, Sources());
  EXPECT_EQ(many->batch(), 8);
  options.threads = 2;
  EXPECT_EQ(Translate(*Open(options), Sources()), expected);
  options.threads = 1;
  options.batch = 1;
  const auto one = Open(options);
  EXPECT_EQ(Translate(*one, Sources()), expected);
  options.batch = 8;
  options.budget = many->plan().arena_bytes() + many->search_bytes();
  EXPECT_EQ(Open(options)->batch(), 8);
  *options.budget -= 1;
  const auto fewer = Open(options);
  EXPECT_EQ(fewer->batch(), 7);
  EXPECT_LE(fewer->plan().arena_bytes() + fewer->search_bytes(),
            *options.budget);
  EXPECT_EQ(Translate(*fewer, Sources()), expected);
  options.budget = one->plan().arena_bytes() + one->search_bytes();
  const auto least = Open(options);
  EXPECT_EQ(least->batch(), 1);
  EXPECT_EQ(Translate(*least, Sources()), expected);
  *options.budget -= 1;
  ExpectRefused(options, StatusCode::kFailed,
                "needs " + std::to_string(*options.budget + 1) + " bytes");
}

TEST_F(TranslatorTest, GivesTheBleuOfItsTranslations) {
  TrainTestRun(text_, run_, {}, 40);
  const auto data = TextData::Open(text_);
  ASSERT_TRUE(data.ok());
  const auto translator = Open({.beam = 1, .max_length = 20});
  const auto bleu = translator->Bleu(**data, TextSplit::kTest);
  ASSERT_TRUE(bleu.ok()) << bleu.status().message();
  text::BleuCounts counts;
  std::string lines = Translate(*translator, Sources());
  for (const auto& [source, target] : TestSentences()) {
    counts.Add(lines.substr(0, lines.find('\n')), target);
    lines.erase(0, lines.find('\n') + 1);
  }
  const text::Bleu expected = counts.Score();
  EXPECT_EQ(bleu->sentences, 6);
  EXPECT_EQ(bleu->bleu, expected.bleu);
  EXPECT_EQ(bleu->precisions[0], expected.precisions[0]);
  EXPECT_GT(bleu->precisions[0], 0);
  EXPECT_EQ(bleu->translated_words, expected.hypothesis_words);
  EXPECT_EQ(bleu->reference_words, 23);
  EXPECT_EQ(translator->Bleu(**data, TextSplit::kValid).status().code(),
            StatusCode::kUsage);
}

TEST_F(TranslatorTest, TakesSparseWeightsAndMeansOfThem) {
  SparseWeights sparse;
  sparse.nonzero = 0.6;
  TrainTestRun(text_, run_,
               {.precision = Precision::All(DType::kBF16), .sparse = sparse});
  TranslateOptions options{.beam = 2, .max_length = 12};
  EXPECT_FALSE(Translate(*Open(options), Sources()).empty());
  options.average = 2;
  const std::string mean = Translate(*Open(options), Sources());
  // As the file that holds it.
  const std::string exported = folder_.File("exported.safetensors");
  ASSERT_TRUE(ExportDense(run_, exported, {.average = 2}).ok());
  WriteTestFile(run_ + "/weights.safetensors", ReadTestFile(exported));
  options.average = 0;
  EXPECT_EQ(Translate(*Open(options), Sources()), mean);
  options.average = 3;
  ExpectRefused(options, StatusCode::kFailed, "keeps the weights of 2 epochs");
}

TEST_F(TranslatorTest, SaysWhichLineIsNoText) {
  TrainTestRun(text_, run_);
  const auto translator = Open({.max_length = 12, .max_source = 50});
  const std::string first = Translate(*translator, "a b\n");
  Status status;
  for (const auto& [line, says] :
       {std::pair<std::string, std::string>("a \xff\xfe", "is not UTF-8"),
        {std::string("a \0 b", 5), "has a NUL byte"},
        {std::string(3 << 20, 'x'), "is longer than"}}) {
    EXPECT_EQ(Translate(*translator, "a b\n" + line + "\nc\n", &status), first);
    EXPECT_EQ(status.code(), StatusCode::kFailed);
    EXPECT_NE(status.message().find("line 2 of the input " + says),
              std::string::npos)
        << status.message();
  }
  std::string longest;
  for (int i = 0; i < 10000; ++i) longest += "a ";
  EXPECT_EQ(Translate(*translator, "a b\n" + longest + "\nc\n", &status),
            first);
  EXPECT_NE(status.message().find("line 2 of the input has 10001 tokens"),
            std::string::npos)
      << status.message();
  // Words that nobody knows are words.
  EXPECT_EQ(
      std::ranges::count(Translate(*translator, "\u00e4 \x1b[0m\n"), '\n'), 1);
}

TEST_F(TranslatorTest, RefusesFoldersThatDoNotFit) {
  ExpectRefused({}, StatusCode::kFailed, "weights.safetensors is not there");
  TrainTestRun(text_, run_);
  const std::string dict = run_ + "/target.dict";
  const std::string good = ReadTestFile(dict);
  std::string more = good;
  for (int i = 0; i < 20; ++i) more += "X" + std::to_string(i) + " 1\n";
  WriteTestFile(dict, more);
  ExpectRefused({}, StatusCode::kFailed, "another dictionary");
  WriteTestFile(dict, "\xff\x00 garbage");
  ExpectRefused({}, StatusCode::kFailed, "target.dict");
  std::remove(dict.c_str());
  ExpectRefused({}, StatusCode::kFailed, "target.dict is not there");
  // As many words, but others.
  WriteTestFile(dict, "D 9\nC 8\nB 7\nA 6\nBA 5\n");
  ExpectRefused({}, StatusCode::kFailed, "others than those");
  WriteTestFile(dict, good);
  Open();
}

TEST_F(TranslatorTest, RefusesTextThatMeansSomethingElse) {
  TrainTestRun(text_, run_);
  const auto translator = Open();
  WriteTestFile(text_ + "/source.dict", "b 9\na 8\nc 7\nd 6\na@@ 5\n");
  const auto data = TextData::Open(text_);
  ASSERT_TRUE(data.ok()) << data.status().message();
  const auto bleu = translator->Bleu(**data, TextSplit::kTest);
  EXPECT_EQ(bleu.status().code(), StatusCode::kFailed);
  EXPECT_NE(bleu.status().message().find("dictionaries"), std::string::npos)
      << bleu.status().message();
}

TEST(TranslateOptions, AreChecked) {
  for (const TranslateOptions& bad :
       {TranslateOptions{.beam = 0}, TranslateOptions{.beam = 257},
        TranslateOptions{.length_penalty = -1},
        TranslateOptions{.length_penalty = NAN},
        TranslateOptions{.max_length = 0}, TranslateOptions{.nbest = 5},
        TranslateOptions{.batch = 0}, TranslateOptions{.max_source = 0},
        TranslateOptions{.average = -1}}) {
    EXPECT_EQ(CheckTranslateOptions(bad).code(), StatusCode::kUsage);
  }
  EXPECT_TRUE(CheckTranslateOptions({}).ok());
}

}  // namespace
}  // namespace thimble::translate
