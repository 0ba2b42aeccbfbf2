// SPDX-License-Identifier: Apache-2.0
//
// The command-line tool from outside: tensors in 16 bits, as asked for and as a
// budget chooses them.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <vector>

#include "base/test_folder.h"
#include "expect_cli.h"
#include "run_cli.h"

namespace thimble {
namespace {

constexpr const char* kTypes[] = {"f16", "bf16"};

Json Trained(const Args& args) {
  const CliResult result = RunCli(args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return Json::parse(result.out, nullptr, false);
}

Args TrainCnn(const Args& options) {
  return Args{"train", "cnn",          "--data", "synthetic", "--batch",
              "20",    "--microbatch", "10",     "--json"} +
         options;
}

TEST(CliIn16Bits, TrainsToTheSameBitsInAnyBudgetAndNumberOfThreads) {
  for (const char* type : kTypes) {
    SCOPED_TRACE(type);
    const Args train = TrainCnn({"--precision", type, "--steps", "6"});
    const Json whole = Trained(train + Args{"--threads", "1"});
    const int64_t arena = whole["arena_bytes"];
    const Json threads = Trained(train + Args{"--threads", "2"});
    EXPECT_EQ(threads["weights_sha256"], whole["weights_sha256"]);
    const int64_t budget = arena * 9 / 10;
    const Json small = Trained(
        train + Args{"--threads", "1", "--budget", std::to_string(budget)});
    EXPECT_LE(small["arena_bytes"], budget);
    EXPECT_EQ(small["weights_sha256"], whole["weights_sha256"]);
    // That the type was stored at all.
    const Json f32 = Trained(TrainCnn({"--steps", "6", "--threads", "1"}));
    EXPECT_NE(f32["weights_sha256"], whole["weights_sha256"]);
    EXPECT_LT(arena, f32["arena_bytes"].get<int64_t>() * 3 / 4);
  }
}

// Waits for the line of `step` in a log that is being written.
void WaitForStep(const std::string& log, int step) {
  const std::string line = "\"step\":" + std::to_string(step) + ",";
  for (int wait = 0; wait < 6000; ++wait) {
    if (ReadWholeFile(log).find(line) != std::string::npos) return;
    usleep(10'000);
  }
  FAIL() << log << " never came to step " << step;
}

TEST(CliIn16Bits, ResumesToTheSameBits) {
  for (const char* type : kTypes) {
    SCOPED_TRACE(type);
    TestFolder folder;
    const Args train =
        TrainCnn({"--precision", type, "--steps", "60", "--threads", "1"});
    const Json whole = Trained(train + Args{"--out", folder.File("whole")});
    const std::string log = folder.File("log.jsonl");
    const Args parts =
        train + Args{"--out", folder.File("parts"), "--log", log};
    const int pid = StartCli(parts, folder.File("stdout"));
    WaitForStep(log, 3);
    kill(pid, SIGINT);
    WaitCli(pid);
    // A default that is typed out is no other setting.
    const std::string rule = std::string(type) == "f16" ? "dynamic" : "none";
    const Json resumed = Trained(parts + Args{"--resume", "--loss-scale", rule,
                                              "--optimizer-state", type});
    EXPECT_EQ(resumed["weights_sha256"], whole["weights_sha256"]);
    EXPECT_EQ(resumed["steps"], 60);
    // It was stopped on the way.
    const std::string text = ReadWholeFile(log);
    const size_t resume = text.find("{\"event\":\"resume\"");
    ASSERT_NE(resume, std::string::npos) << text;
    const Json event =
        Json::parse(text.substr(resume, text.find('\n', resume) - resume));
    EXPECT_GE(event["step"], 3);
    EXPECT_LT(event["step"], 60);
  }
}

// ---- What a budget may choose

const Args kPlan = {"plan", "cnn", "--batch", "40", "--threads", "2", "--json"};

TEST(CliAllow, KeepsABudgetThatOnly16BitsKeep) {
  const CliResult refused = RunCli(kPlan + Args{"--budget", "1kB"});
  EXPECT_EQ(refused.exit_code, 1);
  const Json closest = Json::parse(refused.out);
  const std::string least = WordAfter(refused.err, "with --allow f16 it is ");
  const Args budget = {
      "--budget", std::to_string(closest["bytes"]["arena"].get<int64_t>() - 1)};
  ExpectRefused(kPlan + budget, 1, "with --allow f16 it is " + least);
  ExpectRefused(kPlan + budget + Args{"--precision", "f32", "--allow", "f16"},
                1, "with --allow f16 in place of --precision it is " + least);
  for (const char* type : kTypes) {
    const CliResult kept = RunCli(kPlan + budget + Args{"--allow", type});
    ASSERT_EQ(kept.exit_code, 0) << kept.err;
    const Json plan = Json::parse(kept.out);
    EXPECT_EQ(plan["precision"], type);
    EXPECT_EQ(plan["checkpoint"], "auto");
    const CliResult exact =
        RunCli(kPlan + Args{"--budget", least, "--allow", type});
    ASSERT_EQ(exact.exit_code, 0) << exact.err;
    EXPECT_EQ(Json::parse(exact.out)["bytes"]["arena"].dump(), least);
  }
  // A role with an option of its own stays as it is.
  const CliResult roles =
      RunCli(kPlan + budget + Args{"--allow", "f16", "--parameters", "f32"});
  ASSERT_EQ(roles.exit_code, 0) << roles.err;
  EXPECT_EQ(Json::parse(roles.out)["precision"],
            "parameters f32, gradients f16, activations f16");
}

// With bf16, weights are rounded stochastically: the optimizer is another one.
TEST(CliAllow, TrainsAsIfTheTypeWereAskedFor) {
  const CliResult refused = RunCli(kPlan + Args{"--budget", "1kB"});
  const std::string least = WordAfter(refused.err, "with --allow f16 it is ");
  const Args train = {"train",  "cnn",       "--data", "synthetic", "--batch",
                      "40",     "--threads", "2",      "--steps",   "6",
                      "--json", "--budget",  least};
  for (const char* type : kTypes) {
    SCOPED_TRACE(type);
    const Json chosen = Trained(train + Args{"--allow", type});
    const Json given = Trained(train + Args{"--precision", type});
    EXPECT_EQ(chosen["weights_sha256"], given["weights_sha256"]);
    EXPECT_EQ(chosen["arena_bytes"], given["arena_bytes"]);
  }
}

TEST(CliAllow, TakesTheTypeThatTheNamedCpuIsFasterAt) {
  const CliResult refused = RunCli(kPlan + Args{"--budget", "1kB"});
  const Args both = {"--budget",
                     WordAfter(refused.err, "with --allow f16 it is "),
                     "--allow", "f16,bf16", "--target-class"};
  const Json generic = Json::parse(RunCli(kPlan + both + Args{"generic"}).out);
  EXPECT_EQ(generic["precision"], "f16");
  EXPECT_EQ(generic["target_class"], "generic");
  const Json fast = Json::parse(RunCli(kPlan + both + Args{"avx512bf16"}).out);
  EXPECT_EQ(fast["precision"], "bf16");
  EXPECT_EQ(fast["target_class"], "avx512bf16");
  ExpectRefused(kPlan + Args{"--target-class", "486"}, 2,
                "'486' is no class of CPUs; use generic or avx512bf16");
}

// Types each of them in place of --checkpoint and --budget, with the rest of
// the line as it was.
void ExpectTradeOffsCanBeTyped(const Args& rest, const Args& budget) {
  const Json chosen = Json::parse(RunCli(rest + budget).out);
  ASSERT_FALSE(chosen["trade_offs"].empty());
  for (const Json& trade : chosen["trade_offs"]) {
    Args typed = rest;
    std::istringstream words(trade["options"].get<std::string>());
    for (std::string word; words >> word;) typed.push_back(word);
    const CliResult result = RunCli(typed);
    ASSERT_EQ(result.exit_code, 0) << trade << result.err;
    const Json other = Json::parse(result.out);
    EXPECT_EQ(other["bytes"]["arena"], trade["arena"]) << trade;
    EXPECT_EQ(other["flops"]["step"], trade["flops_step"]) << trade;
  }
}

TEST(CliAllow, TellsTradeOffsThatCanBeTypedBesideIt) {
  ExpectTradeOffsCanBeTyped(
      {"plan", "wrn-10-1", "--batch", "16", "--threads", "1", "--json",
       "--allow", "f16,bf16", "--target-class", "generic"},
      {"--budget", "3MB"});
  // The first has no budget of its own.
  ExpectTradeOffsCanBeTyped(
      {"plan", "mlp", "--threads", "1", "--json", "--allow", "f16"},
      {"--checkpoint", "residual-2", "--budget", "10MB"});
}

TEST(CliAllow, TellsTradeOffsInTheTypeThatWasChosen) {
  const Args plan = {"plan",      "wrn-10-1", "--batch", "16",
                     "--threads", "2",        "--json"};
  const CliResult refused = RunCli(plan + Args{"--budget", "1kB"});
  const int64_t least = Json::parse(refused.out)["bytes"]["arena"];
  const Json chosen =
      Json::parse(RunCli(plan + Args{"--budget", std::to_string(least - 1),
                                     "--allow", "f16"})
                      .out);
  EXPECT_EQ(chosen["precision"], "f16");
  ASSERT_FALSE(chosen["trade_offs"].empty());
  for (const Json& trade : chosen["trade_offs"]) {
    Args typed = plan;
    std::istringstream words(trade["options"].get<std::string>());
    for (std::string word; words >> word;) typed.push_back(word);
    const Json other = Json::parse(RunCli(typed).out);
    EXPECT_EQ(other["precision"], "f16") << trade;
    EXPECT_EQ(other["bytes"]["arena"], trade["arena"]) << trade;
    EXPECT_EQ(other["flops"]["step"], trade["flops_step"]) << trade;
  }
}

// A step that the loss scale skips has no rewiring, neither then nor later.
TEST(CliIn16Bits, AStepThatIsSkippedIsNotFollowedByARewiring) {
  const TestFolder folder;
  const std::string log = folder.File("log.jsonl");
  const Json summary = Trained(
      TrainCnn({"--precision", "f16", "--loss-scale", "apex-2018", "--nonzero",
                "0.3", "--rewire-every", "1", "--steps", "40", "--log", log}));
  std::istringstream lines(ReadWholeFile(log));
  std::vector<int> applied, rewired;
  int skipped = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line, nullptr, false);
    if (event["event"] == "rewire") rewired.push_back(event["step"]);
    if (event["event"] != "step") continue;
    const bool is_due = event["step"] > 1;  // never after the first
    if (event.contains("skipped")) {
      skipped += is_due ? 1 : 0;
    } else if (is_due) {
      applied.push_back(event["step"]);
    }
  }
  EXPECT_GT(skipped, 0);
  EXPECT_FALSE(applied.empty());
  EXPECT_EQ(rewired, applied);
  EXPECT_EQ(summary["rewirings"], applied.size());
}

}  // namespace
}  // namespace thimble
