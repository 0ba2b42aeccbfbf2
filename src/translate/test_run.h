// SPDX-License-Identifier: Apache-2.0
//
// For tests of translating: a prepared text of a few sentences, and the folder
// of a run that a small model was trained on it in. A sentence is letters; its
// translation has the same ones as capitals, the other way round.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "base/test_folder.h"
#include "text/token_file.h"
#include "thimble/batches.h"
#include "thimble/model.h"
#include "thimble/plan.h"
#include "thimble/text_data.h"
#include "thimble/trainer.h"

namespace thimble::translate {

// Sentences of the test split, and how they should be translated.
inline std::vector<std::pair<std::string, std::string>> TestSentences() {
  return {{"a b c d", "D C B A"},         {"d", "D"},
          {"c c a b d d", "D D B A C C"}, {"b a ab", "BA A B"},
          {"d c b a", "A B C D"},         {"ab ab ab ab ab", "BA BA BA BA BA"}};
}

// Writes the folder.
inline void PrepareTestText(const std::string& dir) {
  ASSERT_TRUE(MakeDirs(dir).ok());
  WriteTestFile(dir + "/codes", "#version: 0.2\nB A</w>\n");
  // "ab" is two pieces, "BA" is one.
  WriteTestFile(dir + "/source.dict", "a 9\nb 8\nc 7\nd 6\na@@ 5\n");
  WriteTestFile(dir + "/target.dict", "A 9\nB 8\nC 7\nD 6\nBA 5\n");
  // Two at a time make sentences of two words, in the order of their lengths.
  std::vector<std::pair<std::string, std::string>> train;
  for (char a = 'a'; a <= 'd'; ++a) train.push_back({{a}, {char(a - 32)}});
  for (char a = 'a'; a <= 'd'; ++a) {
    for (char b = 'a'; b <= 'd'; ++b) {
      train.push_back({{a, ' ', b}, {char(b - 32), ' ', char(a - 32)}});
    }
  }
  const auto source = SentenceEncoder::Open(dir, TextSide::kSource);
  const auto target = SentenceEncoder::Open(dir, TextSide::kTarget);
  ASSERT_TRUE(source.ok()) << source.status().message();
  ASSERT_TRUE(target.ok()) << target.status().message();
  for (const auto& [name, pairs] :
       {std::pair("train", train), std::pair("test", TestSentences())}) {
    auto writer = text::TokenFileWriter::Create(
        dir + "/" + name + ".tokens",
        {static_cast<uint32_t>((*source)->dictionary().size()),
         static_cast<uint32_t>((*target)->dictionary().size())});
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    uint32_t line = 0;
    for (const auto& [from, to] : pairs) {
      std::vector<int32_t> a, b;
      (*source)->Encode(from, &a);
      (*target)->Encode(to, &b);
      const std::vector<uint16_t> x(a.begin(), a.end()), y(b.begin(), b.end());
      ASSERT_TRUE(writer->Add(line++, x, y).ok());
    }
    ASSERT_TRUE(writer->Commit().ok());
  }
}

inline void TrainTestRun(const std::string& text, const std::string& out,
                         const PlanOptions& plan_options = {},
                         int64_t epochs = 3) {
  const auto data = TextData::Open(text);
  ASSERT_TRUE(data.ok()) << data.status().message();
  ModelOptions options{
      .batch = 64,
      .dropout = 0.0,
      .source_vocabulary = (*data)->vocabulary(TextSide::kSource),
      .target_vocabulary = (*data)->vocabulary(TextSide::kTarget)};
  const auto model = BuildModel("dynamicconv-16-24-1-1", options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  PlanOptions trains = plan_options;
  trains.optimizer = Adam({});
  const auto plan = MakePlan(*model, trains);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const auto source = MakeTextBatches(**data, {.max_tokens = 64});
  TrainOptions train;
  train.epochs = epochs;
  train.keep_epochs = 2;
  train.learning_rate = 0.02;
  train.schedule = "constant";
  train.out_dir = out;
  const auto summary = Train(*plan, *source, train, nullptr);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
}

}  // namespace thimble::translate
