// SPDX-License-Identifier: Apache-2.0
//
// The command-line tool from outside: `plan`, and what a budget chooses and
// refuses.
#include <gtest/gtest.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "base/test_folder.h"
#include "expect_cli.h"
#include "run_cli.h"

namespace thimble {
namespace {

TEST(Cli, PlanJsonKeepsItsContract) {
  for (const char* model : {"mlp", "cnn"}) {
    for (const char* batch : {"32", "256"}) {
      const CliResult result =
          RunCli({"plan", model, "--batch", batch, "--threads", "2", "--json"});
      ASSERT_EQ(result.exit_code, 0) << result.err;
      const Json plan = Json::parse(result.out, nullptr, false);
      ASSERT_TRUE(plan.is_object());
      const Json& bytes = plan["bytes"];
      const int64_t arena = bytes["arena"];
      const int64_t bound = bytes["lower_bound"];
      EXPECT_LE(bound, arena);
      EXPECT_LE(static_cast<double>(arena), 1.02 * static_cast<double>(bound));
      int64_t sum = 0;
      for (const char* role : {"model", "optimizer", "activation", "workspace",
                               "input", "statistics"}) {
        sum += bytes[role].get<int64_t>();
      }
      EXPECT_EQ(sum, bound);
      EXPECT_GT(plan["parameters"], 0);
      EXPECT_EQ(plan["fits"], true);
      EXPECT_GE(plan["flops"]["ratio"], 1.0);  // prologues run twice
      EXPECT_LE(plan["flops"]["ratio"], 1.01);
      for (const char* key :
           {"model", "batch", "microbatch", "precision", "nonzero",
            "checkpoint", "threads", "paper_bytes", "paper_flops_ratio",
            "peak_op", "inplace", "sharing", "fuse"}) {
        EXPECT_TRUE(plan.contains(key)) << key;
      }
    }
  }
}

TEST(Cli, MicrobatchesTakeLessAndAreReported) {
  const Args plan = {"plan",      "cnn", "--batch", "100",
                     "--threads", "2",   "--json"};
  const Json whole = Json::parse(RunCli(plan).out, nullptr, false);
  const Json parts = Json::parse(
      RunCli(plan + Args{"--microbatch", "20", "--ghost-batch", "10"}).out,
      nullptr, false);
  EXPECT_EQ(whole["microbatch"], 100);
  EXPECT_TRUE(whole["ghost_batch"].is_null());
  EXPECT_EQ(parts["batch"], 100);
  EXPECT_EQ(parts["microbatch"], 20);
  EXPECT_EQ(parts["ghost_batch"], 10);
  EXPECT_LT(parts["bytes"]["arena"].get<int64_t>(),
            whole["bytes"]["arena"].get<int64_t>() / 3);
  for (const char* command : {"plan", "train"}) {
    Args args = {command, "mlp", "--batch", "100", "--microbatch", "30"};
    if (args[0] == "train") args = args + Args{"--data", "synthetic"};
    ExpectRefused(args, 2, "does not divide the batch of 100; 25 would");
  }
  ExpectRefused({"plan", "cnn", "--microbatch", "50", "--ghost-batch", "20"}, 2,
                "does not divide the microbatch of 50; 10 would");
  ExpectRefused({"plan", "cnn", "--microbatch", "0"}, 2, "--microbatch");
}

TEST(Cli, TranslationModelsAreListedAndHaveADropoutOfTheirOwn) {
  const std::string help = RunCli({"plan", "--help"}).out;
  for (const char* name : {"dynamicconv-iwslt", "dynamicconv-D-FFN-ENC-DEC"}) {
    EXPECT_NE(help.find(name), std::string::npos) << name;
  }
  const auto dropout = [](const char* model, const Args& more) {
    return Json::parse(RunCli(Args{"plan", model, "--json"} + more).out,
                       nullptr, false)["dropout"];
  };
  const char* const kSmall = "dynamicconv-16-24-2-2";
  EXPECT_EQ(dropout(kSmall, {}), 0.3);
  EXPECT_EQ(dropout(kSmall, {"--dropout", "0"}), 0.0);
  EXPECT_EQ(dropout(kSmall, {"--dropout", "0.1"}), 0.1);
  EXPECT_EQ(dropout("wrn-10-1", {}), 0.0);
  ExpectRefused({"plan", "dynamicconv-12-24-2-2"}, 2, "multiple of 8");
}

TEST(Cli, RefusesOptionsThatWouldHaveNoEffect) {
  for (const char* command : {"plan", "train"}) {
    Args args = {command, "cnn", "--budget", "1GB", "--min-microbatch", "10"};
    if (args[0] == "train") args = args + Args{"--data", "synthetic"};
    ExpectRefused(args, 2, "no effect where the budget may not choose");
    ExpectRefused(args + Args{"--allow", "exact"}, 2, "add --allow microbatch");
  }
  EXPECT_EQ(RunCli({"plan", "cnn", "--budget", "1GB", "--min-microbatch", "10",
                    "--allow", "microbatch"})
                .exit_code,
            0);
  for (const char* model : {"mlp", "lstm-1-8-28"}) {
    ExpectRefused({"plan", model, "--ghost-batch", "10"}, 2,
                  "has no effect on " + std::string(model) +
                      ", which has no batch norms");
  }
}

TEST(Cli, RefusesAnEmptyItemOfAList) {
  for (const char* list : {"exact,", ",exact", "exact,,microbatch", ","}) {
    ExpectRefused({"plan", "mlp", "--budget", "20MB", "--allow", list}, 2,
                  "'' is none of exact, microbatch");
  }
}

TEST(Cli, HelpNamesEveryDefaultAndStrategy) {
  const std::string help = RunCli({"plan", "--help"}).out;
  // As one line, however it is broken.
  std::string words;
  std::istringstream stream(help);
  for (std::string word; stream >> word;) words += word + " ";
  for (const char* text : {"the --ghost-batch, where it is given; else 8",
                           " revolve, revolve-S, or auto "}) {
    EXPECT_NE(words.find(text), std::string::npos) << text << " in: " << help;
  }
}

TEST(Cli, TwoPassesTakeLessAndAreReported) {
  const Args plan = {"plan",   "wrn-10-1",     "--batch",     "64",
                     "--json", "--checkpoint", "residual-1s", "--two-pass"};
  const Json one = Json::parse(RunCli(plan + Args{"off"}).out, nullptr, false);
  const Json two = Json::parse(RunCli(plan + Args{"on"}).out, nullptr, false);
  EXPECT_EQ(one["two_pass"], false);
  EXPECT_EQ(two["two_pass"], true);
  EXPECT_LT(two["bytes"]["arena"], one["bytes"]["arena"]);
  EXPECT_GT(two["flops"]["recompute"], one["flops"]["recompute"]);
  ExpectRefused({"plan", "cnn", "--two-pass", "maybe"}, 2, "--two-pass");
}

TEST(Cli, KeepsABudgetAndNamesTheSmallestThatWorks) {
  const Args plan = {"plan", "cnn",    "--batch",      "64",  "--threads",
                     "2",    "--json", "--checkpoint", "none"};
  const int64_t arena =
      Json::parse(RunCli(plan).out)["bytes"]["arena"].get<int64_t>();
  EXPECT_EQ(RunCli(plan + Args{"--budget", std::to_string(arena)}).exit_code,
            0);
  const CliResult refused =
      RunCli(plan + Args{"--budget", std::to_string(arena - 1)});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(Json::parse(refused.out)["fits"], false);
  // As sizes they would look alike.
  EXPECT_NE(refused.err.find("needs " + std::to_string(arena) +
                             " bytes, the budget is " +
                             std::to_string(arena - 1) + " bytes; "),
            std::string::npos)
      << refused.err;
  EXPECT_NE(refused.err.find("; --two-pass on may take less"),
            std::string::npos)
      << refused.err;
  EXPECT_EQ(RunCli(plan + Args{"--budget", "1kB", "--two-pass", "on"})
                .err.find("--two-pass"),
            std::string::npos);
  ExpectRefused({"train", "cnn", "--data", "synthetic", "--budget", "1MB"}, 1,
                "smallest budget that works");
}

TEST(Cli, ABudgetAloneChoosesWhatToRecompute) {
  const Args plan = {"plan",      "cnn", "--batch", "64",
                     "--threads", "2",   "--json"};
  const Json none = Json::parse(RunCli(plan).out);
  EXPECT_EQ(none["checkpoint"], "none");
  const int64_t arena = none["bytes"]["arena"];
  const CliResult less =
      RunCli(plan + Args{"--budget", std::to_string(arena * 19 / 20)});
  ASSERT_EQ(less.exit_code, 0) << less.err;
  const Json chosen = Json::parse(less.out);
  EXPECT_EQ(chosen["checkpoint"], "auto");
  EXPECT_LE(chosen["bytes"]["arena"], arena * 19 / 20);
  EXPECT_GT(chosen["flops"]["recompute"], none["flops"]["recompute"]);
  EXPECT_TRUE(chosen["paper_bytes"].is_null());
  EXPECT_TRUE(chosen["paper_flops_ratio"].is_null());

  const CliResult refused = RunCli(plan + Args{"--budget", "1kB"});
  EXPECT_EQ(refused.exit_code, 1);
  const Json closest = Json::parse(refused.out);
  EXPECT_EQ(closest["fits"], false);
  const std::string smallest = closest["bytes"]["arena"].dump();
  EXPECT_NE(refused.err.find("smallest budget that works is " + smallest),
            std::string::npos)
      << refused.err;
  EXPECT_NE(refused.err.find(closest["peak_op"].get<std::string>()),
            std::string::npos);
  EXPECT_EQ(RunCli(plan + Args{"--budget", smallest}).exit_code, 0);
  ExpectRefused({"plan", "cnn", "--checkpoint", "some"}, 2, "recursive-K");
}

TEST(Cli, ABudgetMayAlsoChooseTheMicrobatch) {
  const Args options = {"cnn", "--batch", "40", "--threads", "2"};
  const Args plan = Args{"plan"} + options + Args{"--json"};
  const CliResult refused = RunCli(plan + Args{"--budget", "1kB"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(Json::parse(refused.out)["trade_offs"], Json::array());
  const std::string budget =
      WordAfter(refused.err, "with --allow microbatch it is ");
  EXPECT_EQ(RunCli(plan + Args{"--budget", budget}).exit_code, 1);
  const Args allowed = {"--budget", budget, "--allow", "exact,microbatch"};
  const CliResult fits = RunCli(plan + allowed);
  ASSERT_EQ(fits.exit_code, 0) << fits.err;
  const Json chosen = Json::parse(fits.out);
  EXPECT_EQ(chosen["batch"], 40);
  EXPECT_EQ(chosen["microbatch"].dump(),
            WordAfter(refused.err, ", at microbatch "));
  EXPECT_EQ(chosen["bytes"]["arena"].dump(), budget);

  TestFolder folder;
  const std::string log = folder.File("log.jsonl");
  const Args train =
      Args{"train"} + options + allowed +
      Args{"--data", "synthetic", "--steps", "1", "--json", "--log", log};
  const CliResult trained = RunCli(train);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(Json::parse(trained.out)["arena_bytes"].dump(), budget);
  const std::string text = ReadTestFile(log);
  const Json start = Json::parse(text.substr(0, text.find('\n')));
  EXPECT_EQ(start["plan"]["microbatch"], chosen["microbatch"]);
  ExpectRefused(train + Args{"--min-microbatch", "20"}, 1,
                "batch 40 microbatch 20 with 2 threads");
}

Args SplitAtSpaces(const std::string& text) {
  Args words;
  std::istringstream stream(text);
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

TEST(Cli, TradeOffsAreTrueAsTyped) {
  const Args plan = {"plan",      "cnn", "--batch", "64",
                     "--threads", "2",   "--json"};
  const Json none = Json::parse(RunCli(plan).out);
  const int64_t arena = none["bytes"]["arena"];
  const Args part = {"--budget", std::to_string(arena / 2), "--allow",
                     "microbatch"};
  for (const Args& options :
       {Args{}, Args{"--budget", std::to_string(arena * 19 / 20)},
        Args{"--checkpoint", "every-2"}, part}) {
    SCOPED_TRACE(::testing::PrintToString(options));
    const Json chosen = Json::parse(RunCli(plan + options).out);
    EXPECT_FALSE(chosen["trade_offs"].empty());
    EXPECT_LE(chosen["trade_offs"].size(), 3u);
    const Args table(plan.begin(), plan.end() - 1);
    const std::string text = RunCli(table + options).out;
    for (const Json& trade : chosen["trade_offs"]) {
      const std::string line = trade["options"];
      EXPECT_NE(text.find(": " + line + "\n"), std::string::npos) << text;
      const CliResult typed = RunCli(plan + SplitAtSpaces(line));
      ASSERT_EQ(typed.exit_code, 0) << line << typed.err;
      const Json other = Json::parse(typed.out);
      EXPECT_EQ(other["bytes"]["arena"], trade["arena"]) << line;
      EXPECT_EQ(other["flops"]["step"], trade["flops_step"]) << line;
      EXPECT_EQ(other["microbatch"], chosen["microbatch"]) << line;
    }
  }
}

TEST(Cli, PlanTellsTheTradeOffsInWords) {
  const Args plan = {"plan", "cnn", "--batch", "64", "--threads", "2"};
  const Json chosen = Json::parse(RunCli(plan + Args{"--json"}).out);
  const Json& trade = chosen["trade_offs"].front();
  const double less =
      chosen["bytes"]["arena"].get<double>() - trade["arena"].get<double>();
  const double more = 100.0 * (trade["flops_step"].get<double>() /
                                   chosen["flops"]["step"].get<double>() -
                               1.0);
  char want[128];
  std::snprintf(want, sizeof(want),
                "    %.2f MB less for %.1f%% more FLOPs: --checkpoint ",
                less / 1e6, more);
  const std::string text = RunCli(plan).out;
  EXPECT_NE(text.find(want), std::string::npos) << want << text;
  EXPECT_NE(text.find(" GFLOP per step, "), std::string::npos) << text;
  EXPECT_NE(text.find("(checkpoint none; fused ops "), std::string::npos);
  EXPECT_NE(RunCli(plan + Args{"--fuse", "off"}).out.find("(checkpoint none)"),
            std::string::npos);
  EXPECT_EQ(RunCli(plan + Args{"--explain"}).out.find("less for"),
            std::string::npos);
}

TEST(Cli, PlanDrawsAPageBesideWhatItPrints) {
  TestFolder folder;
  const std::string path = folder.File("plan.html");
  const Args plan = {"plan", "cnn", "--batch", "10", "--threads", "2"};
  const CliResult drawn = RunCli(plan + Args{"--html", path});
  EXPECT_EQ(drawn.exit_code, 0) << drawn.err;
  EXPECT_EQ(drawn.out, RunCli(plan).out);
  const std::string page = ReadWholeFile(path);
  EXPECT_EQ(page.rfind("<!DOCTYPE html>", 0), 0u);
  EXPECT_EQ(page.substr(page.size() - 8), "</html>\n");
  EXPECT_EQ(folder.CountFiles(), 1);
  // What is refused is drawn as well: the picture shows what is too large.
  const CliResult refused =
      RunCli(plan + Args{"--html", path, "--budget", "1MB"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(ReadWholeFile(path).find("1.00 MB (exceeded)"), std::string::npos);
}

TEST(Cli, RefusesPagesThatItCannotWrite) {
  TestFolder folder;
  const Args plan = {"plan", "mlp", "--html"};
  ExpectRefused(plan + Args{"/nowhere/plan.html"}, 1,
                "/nowhere/plan.html: No such file or directory; check the name "
                "and that its folder is there");
  ExpectRefused(plan + Args{folder.path()}, 1, folder.path());
  const std::string pipe = folder.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ExpectRefused(plan + Args{pipe}, 1, "not a regular file");
  ExpectRefused(plan + Args{""}, 2, "--html");
  EXPECT_TRUE(RunCli(plan + Args{"/nowhere/plan.html"}).out.empty());
  EXPECT_EQ(folder.CountFiles(), 0);
}

}  // namespace
}  // namespace thimble
