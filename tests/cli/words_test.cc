// SPDX-License-Identifier: Apache-2.0
//
// The words of the tool for what the library gives as data. That what they say
// works as typed is tested with the tool itself, in plan_cli_test.cc and
// cli_test.cc.
#include "words.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "thimble/model.h"

namespace thimble::cli {
namespace {

Reach ReachOf(Freedom freedom, size_t bytes, int64_t microbatch) {
  Reach reach;
  reach.freedom = freedom;
  reach.arena_bytes = bytes;
  reach.microbatch = microbatch;
  return reach;
}

TEST(Words, OfARefusalAreOptionsToType) {
  Refusal refusal;
  refusal.model = "net";
  refusal.reaches = {ReachOf(Freedom::kOneThread, 1001, 100),
                     ReachOf(Freedom::kRecomputation, 1002, 100),
                     ReachOf(Freedom::kMicrobatch, 1003, 10),
                     ReachOf(Freedom::kPrecision, 1005, 100),
                     ReachOf(Freedom::kOneAtATime, 1004, 1)};
  refusal.microbatch = 100;
  refusal.two_passes_may_help = true;
  const std::string need = NeedText(refusal);
  EXPECT_EQ(RefusalText(refusal),
            need +
                ", with --threads 1 it is 1001 bytes"
                ", with --checkpoint auto it is 1002 bytes"
                "; with --allow microbatch it is 1003 bytes, at microbatch 10"
                "; with --allow f16 it is 1005 bytes"
                ", with --batch 1 it is 1004 bytes"
                "; --two-pass on may take less, for more work");
  refusal.reaches = {ReachOf(Freedom::kMicrobatch, 1003, 10)};
  refusal.two_passes_may_help = false;
  refusal.options.microbatch = 50;
  EXPECT_EQ(RefusalText(refusal),
            NeedText(refusal) +
                "; with --allow microbatch in place of --microbatch it is 1003 "
                "bytes, at microbatch 10");
}

TEST(Words, OfARefusalGoOnFromWhatIsAllowed) {
  Refusal refusal;
  refusal.reaches = {ReachOf(Freedom::kPrecision, 1005, 10)};
  refusal.microbatch = 20;
  refusal.options.allow_microbatch = true;
  EXPECT_EQ(RefusalText(refusal),
            NeedText(refusal) +
                "; with f16 added to --allow it is 1005 bytes, at microbatch "
                "10");
  refusal.options.allow_microbatch = false;
  refusal.microbatch = 10;
  EXPECT_EQ(RefusalText(refusal, /*precision_is_typed=*/true),
            NeedText(refusal) +
                "; with --allow f16 in place of --precision it is 1005 bytes");
  refusal.reaches = {ReachOf(Freedom::kMicrobatch, 1003, 10)};
  refusal.options.allow_precision = {{Precision::All(DType::kF16), nullptr}};
  EXPECT_EQ(RefusalText(refusal),
            NeedText(refusal) +
                "; with microbatch added to --allow it is 1003 bytes, at "
                "microbatch 10");
  refusal.options.allow_precision.clear();
  refusal.options.allow_nonzero = {0.5};
  EXPECT_EQ(RefusalText(refusal),
            NeedText(refusal) +
                "; with microbatch added to --allow it is 1003 bytes, at "
                "microbatch 10");
  refusal.reaches = {ReachOf(Freedom::kPrecision, 1005, 10)};
  EXPECT_EQ(RefusalText(refusal),
            NeedText(refusal) + "; with f16 added to --allow it is 1005 bytes");
}

TEST(Words, OfTradeOffsNameTheShareThatABudgetChose) {
  const Result<Model> model = BuildModel("mlp", {.batch = 10});
  ASSERT_TRUE(model.ok());
  const Plan dense = *MakePlan(*model, {});
  const Plan plan = *MakePlan(*model, {.recompute = "auto",
                                       .budget = dense.arena_bytes() - 1,
                                       .allow_nonzero = {0.3}});
  const TradeOff trades[] = {{plan.options(), plan.arena_bytes(), 0}};
  EXPECT_NE(TradeOffLines(plan, trades).find(": --nonzero 0.3 --checkpoint"),
            std::string::npos)
      << TradeOffLines(plan, trades);
}

TEST(Words, OfTradeOffsSayBytesWorkAndOptions) {
  const Result<Model> model = BuildModel("mlp", {.batch = 10});
  ASSERT_TRUE(model.ok());
  const Plan plan = *MakePlan(*model, {});
  const size_t arena = plan.arena_bytes();
  TradeOff trades[] = {
      {plan.options(), arena - 1'000'000, plan.flops_step() * 5 / 4},
      {plan.options(), arena, plan.flops_step() * 3 / 4},
      {plan.options(), arena + 2'000'000, plan.flops_step() / 2}};
  trades[0].options.recompute = "residual-2*";
  trades[1].options.recompute = "auto";
  trades[1].options.budget = 20'500'000;
  trades[2].options.recompute = "auto";
  trades[2].options.budget = 20'512'345;
  trades[2].options.microbatch = 5;
  EXPECT_EQ(TradeOffLines(plan, trades),
            "\n  nearest trade-offs, in place of --checkpoint and --budget:\n"
            "    1.00 MB less for 25.0% more FLOPs: --checkpoint residual-2s\n"
            "    the same bytes for 25.0% fewer FLOPs: --checkpoint auto "
            "--budget 20.50MB\n"
            "    2.00 MB more for 50.0% fewer FLOPs: --microbatch 5 "
            "--checkpoint auto --budget 20512345\n");
  EXPECT_EQ(TradeOffLines(plan, {}), "");
}

TEST(Words, OfAShareArePercentAndOfAnotherMetricItsNumber) {
  EXPECT_EQ(MetricText("accuracy", 0.91104, /*is_share=*/true), "91.10%");
  EXPECT_EQ(MetricText("loss", 27.30419, /*is_share=*/false), "27.3042");
  EXPECT_EQ(MetricText("nll", 2.0, /*is_share=*/false),
            "2.0000 (perplexity 7.389)");
  for (const bool is_share : {true, false}) {
    EXPECT_EQ(MetricText("loss", std::nan(""), is_share), "not measured");
  }
}

TEST(Words, PutOptionsInPlaceOfEveryField) {
  EXPECT_EQ(WithOptions("add PlanOptions::allow_microbatch, or leave out "
                        "PlanOptions::min_microbatch"),
            "add --allow microbatch, or leave out --min-microbatch");
  EXPECT_EQ(WithOptions("PlanOptions::microbatch, PlanOptions::microbatch, "
                        "PlanOptions::ghost_batch, Model::batch; "
                        "ImageBatchOptions::keep_last"),
            "--microbatch, --microbatch, --ghost-batch, --batch; --keep-last");
  EXPECT_EQ(WithOptions("a batch of 5"), "a batch of 5");
  EXPECT_EQ(WithOptions("PlanOptions::sharing = false, not "
                        "PlanOptions::sharing"),
            "--sharing off, not --sharing");
}

TEST(Words, PutCommandsInPlaceOfFunctions) {
  EXPECT_EQ(WithOptions("get it with FetchDataset(\"cifar10\"), one of "
                        "KnownDatasets()"),
            "get it with `thimble data get cifar10`, one of "
            "`thimble data list`");
  EXPECT_EQ(WithOptions("what Train with TrainOptions::out_dir wrote, and "
                        "TrainOptions::out_dir"),
            "what `thimble train --out` wrote, and --out");
}

// What stands between quotes in a line of source.
std::string QuotedIn(const std::string& line) {
  std::string quoted;
  bool inside = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (!inside && line.compare(i, 2, "//") == 0) break;
    if (!inside && line.compare(i, 3, "'\"'") == 0) {
      i += 2;
    } else if (inside && line[i] == '\\') {
      quoted += line[++i];
    } else if (line[i] == '"') {
      inside = !inside;
      quoted += ' ';
    } else if (inside) {
      quoted += line[i];
    }
  }
  return quoted;
}

struct SourceText {
  std::string place;  // "train/log.cc:12"
  std::string quoted;
};

// Of the sources of `folder` that are no tests, line by line.
std::vector<SourceText> QuotedTextsOf(const std::string& folder) {
  const std::filesystem::path root =
      std::filesystem::path(THIMBLE_SOURCE_DIR) / folder;
  std::vector<SourceText> texts;
  for (const auto& file : std::filesystem::recursive_directory_iterator(root)) {
    const std::string name = file.path().filename();
    const bool is_source = name.ends_with(".cc") || name.ends_with(".h");
    if (!is_source || name.ends_with("_test.cc")) continue;
    const std::string path = relative(file.path(), root);
    std::ifstream lines(file.path());
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      std::string quoted = QuotedIn(line);
      if (quoted.empty()) continue;
      texts.push_back({path + ":" + std::to_string(number), quoted});
    }
  }
  EXPECT_GT(texts.size(), 100u) << root;
  return texts;
}

// What `pattern` matches in `text`, each with what its first group is.
std::vector<std::string> MatchesIn(const std::string& text,
                                   const std::regex& pattern) {
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), pattern), end;
       at != end; ++at) {
    found.push_back((*at)[1]);
  }
  return found;
}

TEST(Words, KnowEveryFieldAndFunctionThatTheLibraryNames) {
  const std::regex field("([A-Z][A-Za-z]*Options::[a-z_]+|\\bModel::[a-z]+)");
  const std::regex function("\\b([A-Z][A-Za-z]*[a-z]\\((?:\"[a-z0-9]*\")?\\))");
  size_t fields = 0;
  size_t functions = 0;
  for (const SourceText& text : QuotedTextsOf("src")) {
    for (const std::string& name : MatchesIn(text.quoted, field)) {
      ++fields;
      EXPECT_EQ(WithOptions(name).substr(0, 2), "--") << text.place;
    }
    for (const std::string& name : MatchesIn(text.quoted, function)) {
      ++functions;
      EXPECT_EQ(WithOptions(name).substr(0, 9), "`thimble ") << text.place;
    }
  }
  EXPECT_GE(fields, 6u);
  EXPECT_GE(functions, 3u);
}

// A library's user has no command line.
TEST(Words, WithOptionsAreTheToolsAlone) {
  // curl has options too, and style sheets have variables with dashes: only
  // what our own tool takes is looked for.
  std::set<std::string> options;
  for (const SourceText& text : QuotedTextsOf("cli")) {
    for (const std::string& option :
         MatchesIn(text.quoted, std::regex("^ (--[a-z][a-z-]*) "))) {
      options.insert(option);
    }
  }
  EXPECT_GE(options.size(), 40u);
  EXPECT_TRUE(options.contains("--ghost-batch"));
  const std::regex word("(--[a-z][a-z-]*|`thimble\\b)");
  for (const SourceText& text : QuotedTextsOf("src")) {
    for (const std::string& found : MatchesIn(text.quoted, word)) {
      EXPECT_FALSE(found == "`thimble" || options.contains(found))
          << "src/" << text.place << " tells a library's user to type " << found
          << "; name the field, and let WithOptions put the option there";
    }
  }
}

}  // namespace
}  // namespace thimble::cli
