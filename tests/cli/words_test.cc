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
                     ReachOf(Freedom::kOneImage, 1004, 1)};
  refusal.two_passes_may_help = true;
  const std::string need = NeedText(refusal);
  EXPECT_EQ(RefusalText(refusal),
            need +
                ", with --threads 1 it is 1001 bytes"
                ", with --checkpoint auto it is 1002 bytes"
                "; with --allow microbatch it is 1003 bytes, at microbatch 10"
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

TEST(Words, OfTradeOffsSayBytesWorkAndOptions) {
  const Result<Model> model = BuildModel("mlp", {.batch = 10});
  ASSERT_TRUE(model.ok());
  const Plan plan = *MakePlan(*model, {});
  const size_t arena = plan.arena_bytes();
  TradeOff trades[] = {
      {plan.options(), arena - 1'000'000, plan.flops_step() * 5 / 4},
      {plan.options(), arena, plan.flops_step() * 3 / 4},
      {plan.options(), arena + 2'000'000, plan.flops_step() / 2}};
  trades[0].options.checkpoint = "residual-2*";
  trades[1].options.checkpoint = "auto";
  trades[1].options.budget = 20'500'000;
  trades[2].options.checkpoint = "auto";
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
  EXPECT_EQ(MetricText(0.91104, /*is_share=*/true), "91.10%");
  EXPECT_EQ(MetricText(27.30419, /*is_share=*/false), "27.3042");
  for (const bool is_share : {true, false}) {
    EXPECT_EQ(MetricText(std::nan(""), is_share), "not measured");
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
}

// The string literals of a module's sources, one line each.
std::vector<std::string> LiteralsOf(const std::string& module) {
  std::vector<std::string> literals;
  const std::string folder = std::string(THIMBLE_SOURCE_DIR) + "/src/" + module;
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = file.path().string();
    if (!name.ends_with(".cc") || name.ends_with("_test.cc")) continue;
    std::ifstream lines(name);
    for (std::string line; std::getline(lines, line);) {
      const size_t code = line.find_first_not_of(' ');
      const size_t begin = line.find('"');
      if (begin == line.npos || line.compare(code, 2, "//") == 0) continue;
      literals.push_back(line.substr(begin));
    }
  }
  EXPECT_GT(literals.size(), 10u) << folder;
  return literals;
}

TEST(Words, KnowEveryFieldThatTheLibraryNames) {
  const std::regex field("[A-Z][A-Za-z]*Options::[a-z_]+|Model::[a-z]+");
  size_t found = 0;
  for (const std::string& line : LiteralsOf("")) {
    for (std::sregex_iterator at(line.begin(), line.end(), field), end;
         at != end; ++at) {
      ++found;
      EXPECT_EQ(WithOptions(at->str()).substr(0, 2), "--") << line;
    }
  }
  EXPECT_GE(found, 6u);
}

// A library's user has no command line.
TEST(Words, WithOptionsAreNotThePlannersNorTheReports) {
  // Not every word with dashes is one: style sheets have variables.
  const std::regex option(
      "--(allow|batch|budget|checkpoint|fuse|ghost-batch|inplace|keep-last|"
      "microbatch|min-microbatch|sharing|threads|two-pass)");
  for (const char* module : {"planner", "report"}) {
    for (const std::string& line : LiteralsOf(module)) {
      EXPECT_FALSE(std::regex_search(line, option)) << line;
    }
  }
}

}  // namespace
}  // namespace thimble::cli
