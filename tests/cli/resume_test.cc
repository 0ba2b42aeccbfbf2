// SPDX-License-Identifier: Apache-2.0
//
// A run that is stopped or killed and resumed ends in the same bits as one that
// was not.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/test_folder.h"
#include "run_cli.h"

namespace thimble {
namespace {

using Json = nlohmann::json;
using Args = std::vector<std::string>;

// Epochs of 64 steps.
Args TrainArgs(const std::string& dir, const char* epochs) {
  return {"train",    "mlp",       "--data",    "synthetic", "--batch",  "64",
          "--epochs", epochs,      "--threads", "2",         "--out",    dir,
          "--json",   "--dropout", "0.2",       "--augment", "crop-flip"};
}

Json Finish(Args args) {
  args.push_back("--resume");
  const CliResult result = RunCli(args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return Json::parse(result.out, nullptr, false);
}

// Starts a run, and sends `signal` after `delay` microseconds.
void Interrupt(const Args& args, const TestFolder& folder, int signal,
               int delay) {
  Args resumed = args;
  resumed.push_back("--resume");
  const int pid = StartCli(resumed, folder.File("stdout"));
  usleep(static_cast<useconds_t>(delay));
  kill(pid, signal);
  WaitCli(pid);
}

void ExpectTheSameBitsAfterStopsAndKills(const Args& options) {
  TestFolder folder;
  const auto args_of = [&](const std::string& dir) {
    Args args = TrainArgs(folder.File(dir), "4");
    args.insert(args.end(), options.begin(), options.end());
    return args;
  };
  const Json whole = Finish(args_of("whole"));
  EXPECT_EQ(whole["steps"], 256);
  for (int signal : {SIGINT, SIGKILL}) {
    const Args args = args_of(std::to_string(signal));
    // Growing pauses: whatever the machine's speed, some fall into the middle
    // of an epoch, of a save, of a test.
    for (int round = 1; round <= 6; ++round) {
      Interrupt(args, folder, signal, 30'000 * round);
    }
    const Json resumed = Finish(args);
    for (const char* key : {"weights_sha256", "steps", "best_test_accuracy",
                            "test_accuracy", "final_train_loss", "rewirings"}) {
      EXPECT_EQ(resumed.value(key, Json()), whole.value(key, Json())) << key;
    }
  }
}

TEST(Resume, EndsInTheSameBitsAfterStopsAndKills) {
  ExpectTheSameBitsAfterStopsAndKills({});
}

// Wherever a signal falls, a rewiring is a step away.
TEST(Resume, OfRewiredWeightsEndsInTheSameBitsAfterStopsAndKills) {
  ExpectTheSameBitsAfterStopsAndKills(
      {"--nonzero", "0.3", "--rewire-every", "1", "--sparsify", "*.weight"});
}

TEST(Resume, OfAFinishedRunReportsItAgain) {
  TestFolder folder;
  Args args = TrainArgs(folder.File("run"), "1");
  const Json first = Finish(args);
  const Json again = Finish(args);
  EXPECT_EQ(again["weights_sha256"], first["weights_sha256"]);
  EXPECT_EQ(again["best_test_accuracy"], first["best_test_accuracy"]);
  // Nothing was trained, so there is no speed.
  EXPECT_GT(first["images_per_second"], 0);
  EXPECT_TRUE(again["images_per_second"].is_null()) << again;
  *std::ranges::find(args, "--json") = "--resume";
  const std::string table = RunCli(args).out;
  EXPECT_NE(table.find("\nnothing was left to train after step 64\n"),
            std::string::npos)
      << table;
  EXPECT_EQ(table.find("went on"), std::string::npos) << table;
  EXPECT_NE(table.find("images/s                     not measured\n"),
            std::string::npos)
      << table;
}

TEST(Resume, OfAFinishedRunWritesItsWeightsAgain) {
  TestFolder folder;
  const Args args = TrainArgs(folder.File("run"), "1");
  Finish(args);
  const std::string path = folder.File("run") + "/weights.safetensors";
  const std::string good = ReadTestFile(path);
  ASSERT_EQ(unlink(path.c_str()), 0);
  Finish(args);
  EXPECT_TRUE(ReadTestFile(path) == good);
  WriteTestFile(path, "damaged");
  Finish(args);
  EXPECT_TRUE(ReadTestFile(path) == good);
}

TEST(Resume, AppendsToALogOnANewLine) {
  TestFolder folder;
  const std::string log = folder.File("log.jsonl");
  Args args = TrainArgs(folder.File("run"), "1");
  args.insert(args.end(), {"--log", log});
  Finish(args);
  const std::string whole = ReadTestFile(log);
  const std::string torn = whole.substr(0, whole.size() - 20);
  const std::string resumed = "{\"event\":\"resume\",\"step\":64}\n";
  for (const std::string& before : {whole, torn, std::string()}) {
    WriteTestFile(log, before);
    Finish(args);
    std::string want = before;
    want += before == torn ? "\n" : "";
    want += resumed;
    EXPECT_EQ(ReadTestFile(log).rfind(want, 0), 0u)
        << ReadTestFile(log).substr(before.size());
  }
}

TEST(Resume, RefusesOtherSettingsAndDamagedFiles) {
  TestFolder folder;
  const Args args = TrainArgs(folder.File("run"), "1");
  Finish(args);
  const auto refused = [&](Args changed, const std::string& says) {
    changed.push_back("--resume");
    const CliResult result = RunCli(changed);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.err.find(says), std::string::npos) << result.err;
  };
  Args other = args;
  other[5] = "32";
  refused(other, "batch = 64, now it is 32");
  other = args;
  other.insert(other.end(), {"--microbatch", "16"});
  refused(other, "microbatch = 64, now it is 16");
  other = args;
  other.insert(other.end(), {"--seed", "9"});
  refused(other, "seed = 1, now it is 9");
  other = args;
  *std::ranges::find(other, "0.2") = "0.3";
  refused(other, "dropout = 0.2, now it is 0.3");
  other = args;
  other.insert(other.end(), {"--fuse", "off"});
  refused(other, "fuse = on, now it is off");
  other = args;
  other.back() = "none";
  refused(other, "augment = crop-flip, now it is none");
  // The default loss scale differs too.
  other = args;
  other.insert(other.end(), {"--precision", "f16"});
  refused(other, "precision = f32, now it is f16");
  other = args;
  other.insert(other.end(), {"--optimizer-state", "u8"});
  refused(other, "optimizer state = as the weight is, now it is u8");
  // Its learning rate and layers differ too.
  other = args;
  other[1] = "cnn";
  refused(other, "model = mlp, now it is cnn");

  const std::string path = folder.File("run") + "/checkpoint.safetensors";
  const std::string good = ReadTestFile(path);
  std::string bad = good;
  bad[bad.size() - 5] = static_cast<char>(bad[bad.size() - 5] ^ 1);
  WriteTestFile(path, bad);
  refused(args, "checksum");
  WriteTestFile(path, good.substr(0, good.size() / 2));
  refused(args, path);
  EXPECT_EQ(
      RunCli({"train", "mlp", "--data", "synthetic", "--resume"}).exit_code, 2);
}

TEST(Resume, OneRunAtATimeWritesIntoAFolder) {
  TestFolder folder;
  const std::string run = folder.File("run");
  const std::string log = folder.File("log.jsonl");
  const int pid = StartCli({"train", "mlp", "--data", "synthetic", "--epochs",
                            "100000", "--out", run, "--log", log},
                           folder.File("stdout"));
  for (int wait = 0; wait < 6000; ++wait) {
    if (ReadWholeFile(log).find("\"step\"") != std::string::npos) break;
    usleep(10'000);
  }
  const Args second = {"train", "mlp",   "--data", "synthetic",  "--steps",
                       "1",     "--out", run,      "--overwrite"};
  const CliResult refused = RunCli(second);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.err.find(run + " is in use by another process"),
            std::string::npos)
      << refused.err;
  kill(pid, SIGKILL);
  WaitCli(pid);
  const std::string stale = run + "/weights.safetensors.tmp.";
  WriteTestFile(stale + std::to_string(pid), "half");
  EXPECT_EQ(RunCli(second).exit_code, 0);
  EXPECT_NE(access((stale + std::to_string(pid)).c_str(), F_OK), 0);
}

}  // namespace
}  // namespace thimble
