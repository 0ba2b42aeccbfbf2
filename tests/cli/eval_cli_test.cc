// SPDX-License-Identifier: Apache-2.0
//
// The command-line tool from outside: `eval`, of what `train` has left.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/test_folder.h"
#include "expect_cli.h"
#include "run_cli.h"

namespace thimble {
namespace {

TEST(Cli, TrainsWithDropoutsAndEvaluatesWithout) {
  TestFolder folder;
  std::string weights[2];
  for (const char* rate : {"0", "0.5"}) {
    const CliResult result =
        RunCli({"train", "mlp", "--data", "synthetic", "--steps", "2",
                "--dropout", rate, "--out", folder.File(rate), "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const CliResult tested = RunCli(
        {"eval", "--from", folder.File(rate), "--data", "synthetic", "--json"});
    ASSERT_EQ(tested.exit_code, 0) << tested.err;
    EXPECT_EQ(Json::parse(tested.out)["test_accuracy"],
              Json::parse(result.out)["test_accuracy"]);
    weights[rate[1] == '.'] = Json::parse(result.out)["weights_sha256"];
  }
  EXPECT_NE(weights[0], weights[1]);
  const Json plan = Json::parse(
      RunCli({"plan", "wrn-10-1", "--dropout", "0.3", "--json"}).out);
  EXPECT_EQ(plan["dropout"], 0.3);
  ExpectRefused({"plan", "mlp", "--dropout", "1"}, 2, "--dropout");
  ExpectRefused({"plan", "lstm-1-8-28", "--dropout", "0.3"}, 2,
                "mlp, cnn, wrn-D-K and dynamicconv-");
}

TEST(Cli, EvalCountsEveryTestImageWhateverTheBatch) {
  const struct {
    const char* model;
    std::vector<const char*> batches;
  } cases[] = {{"mlp", {"1", "999"}}, {"cnn", {"7"}}};
  for (const auto& [model, batches] : cases) {
    TestFolder folder;
    const CliResult train =
        RunCli({"train", model, "--data", "synthetic", "--batch", "32",
                "--steps", "10", "--out", folder.File("run"), "--json"});
    ASSERT_EQ(train.exit_code, 0) << train.err;
    const Json summary = LastLine(train.out);
    for (const char* batch : batches) {
      const CliResult eval =
          RunCli({"eval", "--from", folder.File("run"), "--data", "synthetic",
                  "--batch", batch, "--json"});
      ASSERT_EQ(eval.exit_code, 0) << eval.err;
      const Json result = LastLine(eval.out);
      EXPECT_EQ(result["images"], 1000);
      EXPECT_EQ(result["test_accuracy"], summary["test_accuracy"]);
      EXPECT_EQ(result["weights_sha256"], summary["weights_sha256"]);
    }
  }
}

TEST(Cli, EvalNamesTheBudgetsThatWork) {
  TestFolder folder;
  const std::string run = folder.File("run");
  ASSERT_EQ(RunCli({"train", "mlp", "--data", "synthetic", "--steps", "1",
                    "--out", run})
                .exit_code,
            0);
  const Args eval = {"eval",      "--from",    run, "--data",
                     "synthetic", "--threads", "2"};
  const CliResult refused = RunCli(eval + Args{"--budget", "1kB"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(refused.err.find("microbatch"), std::string::npos) << refused.err;
  const auto expect_works = [&](const std::string& says, const Args& more) {
    const Args with = eval + more;
    const std::string budget = WordAfter(refused.err, says);
    EXPECT_EQ(RunCli(with + Args{"--budget", budget}).exit_code, 0) << says;
    const std::string less = std::to_string(std::stoull(budget) - 1);
    EXPECT_EQ(RunCli(with + Args{"--budget", less}).exit_code, 1) << says;
  };
  expect_works("budget that works is ", {});
  expect_works("with --batch 1 it is ", {"--batch", "1"});
}

TEST(Cli, EvalRefusesDamagedWeightsAndTakesThoseWithoutAChecksum) {
  TestFolder folder;
  const std::string run = folder.File("run");
  ASSERT_EQ(RunCli({"train", "mlp", "--data", "synthetic", "--steps", "2",
                    "--out", run})
                .exit_code,
            0);
  const Args eval = {"eval", "--from", run, "--data", "synthetic", "--json"};
  const std::string path = run + "/weights.safetensors";
  const std::string good = ReadWholeFile(path);
  // A bit in the middle of the tensors, and of the last one.
  for (size_t at : {good.size() / 2, good.size() - 2}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    WriteTestFile(path, bad);
    ExpectRefused(eval, 1, path + " is damaged: its checksum");
  }
  // Without the sums, as another program leaves it.
  WriteTestFile(path, good);
  ChangeMetadata(path, [](Json&) {});
  std::string foreign = ReadWholeFile(path);
  foreign.back() = static_cast<char>(foreign.back() ^ 1);
  WriteTestFile(path, foreign);
  EXPECT_EQ(RunCli(eval).exit_code, 0);
}

TEST(Cli, EvalSaysInWordsThatALossIsNotFinite) {
  TestFolder folder;
  const std::string run = folder.File("run");
  const Args train = {"train",   "mlp", "--data", "synthetic",
                      "--steps", "2",   "--out",  run};
  ASSERT_EQ(RunCli(train).exit_code, 0);
  const std::string path = run + "/weights.safetensors";
  ChangeMetadata(path, [](Json&) {});
  // The last float of the last tensor is no number.
  std::string broken = ReadWholeFile(path);
  broken.replace(broken.size() - 4, 4, "\xff\xff\xff\x7f");
  WriteTestFile(path, broken);
  const CliResult result =
      RunCli({"eval", "--from", run, "--data", "synthetic"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("%, the loss is not finite, arena "),
            std::string::npos)
      << result.out;
}

}  // namespace
}  // namespace thimble
