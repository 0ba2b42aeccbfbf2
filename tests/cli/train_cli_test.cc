// SPDX-License-Identifier: Apache-2.0
//
// The command-line tool from outside: what `train` leaves
// on disk, in its folder and in its log, however it ends.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/test_folder.h"
#include "expect_cli.h"
#include "run_cli.h"

namespace thimble {
namespace {

TEST(Cli, RefusesALogThatIsAFileOfTheOutFolder) {
  TestFolder folder;
  const std::string run = folder.File("run");
  const std::string link = folder.File("link");
  ASSERT_EQ(mkdir(run.c_str(), 0777), 0);
  ASSERT_EQ(symlink(run.c_str(), link.c_str()), 0);
  const Args train = {"train",   "mlp", "--data", "synthetic",
                      "--steps", "1",   "--out",  run};
  for (const std::string& dir : {run, link, folder.path() + "/./run"}) {
    for (const char* name :
         {"weights.safetensors", "checkpoint.safetensors",
          "weights.safetensors.tmp.1", "checkpoint.safetensors.tmp.1"}) {
      const std::string log = dir + "/" + name;
      ExpectRefused(train + Args{"--log", log}, 2,
                    "the log " + log + " would be written over " + run);
    }
  }
  EXPECT_EQ(folder.CountFiles(), 0);
  EXPECT_EQ(RunCli(train + Args{"--log", run + "/log.jsonl"}).exit_code, 0);
  EXPECT_EQ(folder.CountFiles(), 3);
}

// Of which the advice of a plan that does not fit would be the proof.
TEST(Cli, TellsOfFilesInTheWayBeforeItPlans) {
  TestFolder folder;
  const std::string file = folder.File("notes"), run = folder.File("run");
  WriteTestFile(file, "no log");
  const Args train = {"train",   "mlp", "--data",   "synthetic",
                      "--steps", "1",   "--budget", "1"};
  ExpectRefused(train + Args{"--log", file}, 1, "is no log of a run");
  ExpectRefused(train + Args{"--log", folder.path()}, 1, "Is a directory");
  ExpectRefused(train + Args{"--log", folder.File("a/b")}, 1,
                "No such file or directory; name a file in a folder");
  ExpectRefused(train + Args{"--out", file}, 1, "notes is there and is not");
  ExpectRefused(train + Args{"--out", file + "/run"}, 1,
                "notes is there and is not a folder");
  EXPECT_EQ(ReadTestFile(file), "no log");
  // What can be made does not hinder, and is not made for a plan that is
  // refused.
  ExpectRefused(train + Args{"--out", run, "--log", run + "/log"}, 1,
                "the budget is 1 B");
  EXPECT_NE(access(run.c_str(), F_OK), 0);
  ASSERT_EQ(mkdir(run.c_str(), 0777), 0);
  WriteTestFile(run + "/weights.safetensors", "");
  ExpectRefused(train + Args{"--out", run}, 1, "holds weights already");
  ExpectRefused(train + Args{"--out", run, "--resume"}, 1,
                "holds weights but no checkpoint");
  ExpectRefused(train + Args{"--out", run, "--overwrite"}, 1,
                "the budget is 1 B");
}

TEST(Cli, ASecondRunIntoAFolderReplacesNothingUnasked) {
  TestFolder folder;
  const std::string run = folder.File("run");
  const std::string weights = run + "/weights.safetensors";
  const std::string checkpoint = run + "/checkpoint.safetensors";
  const std::string log = folder.File("log.jsonl");
  const auto train = [&](const char* seed) {
    return Args{"train",   "mlp", "--data", "synthetic", "--seed", seed,
                "--steps", "1",   "--out",  run,         "--log",  log};
  };
  ASSERT_EQ(mkdir(run.c_str(), 0777), 0);
  WriteTestFile(run + "/notes.txt", "mine");
  // Without --out there is nothing to replace.
  ExpectRefused(
      {"train", "mlp", "--data", "synthetic", "--steps", "1", "--overwrite"}, 2,
      "--overwrite needs --out");
  ASSERT_EQ(RunCli(train("1")).exit_code, 0);
  const std::string first[] = {ReadTestFile(weights), ReadTestFile(checkpoint),
                               ReadTestFile(log)};
  ExpectRefused(train("2"), 1,
                run +
                    " holds a run already; --resume goes on with it, "
                    "--overwrite starts anew");
  ExpectRefused(train("2") + Args{"--overwrite", "--resume"}, 2,
                "give one of them");
  EXPECT_TRUE(ReadTestFile(weights) == first[0]);
  EXPECT_TRUE(ReadTestFile(checkpoint) == first[1]);
  EXPECT_EQ(ReadTestFile(log), first[2]);
  EXPECT_EQ(RunCli(train("2") + Args{"--overwrite"}).exit_code, 0);
  EXPECT_FALSE(ReadTestFile(weights) == first[0]);
  EXPECT_FALSE(ReadTestFile(checkpoint) == first[1]);
  EXPECT_EQ(ReadTestFile(run + "/notes.txt"), "mine");

  ASSERT_EQ(unlink(checkpoint.c_str()), 0);
  ExpectRefused(train("1"), 1, run + " holds weights already");
  EXPECT_EQ(RunCli(train("1") + Args{"--overwrite"}).exit_code, 0);
  EXPECT_TRUE(ReadTestFile(weights) == first[0]);
}

TEST(Cli, AFullDiskUnderTheLogEndsTheLogNotTheTraining) {
  const CliResult result =
      RunCli({"train", "mlp", "--data", "synthetic", "--steps", "3", "--json",
              "--log", "/dev/full"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("not complete"), std::string::npos) << result.err;
  EXPECT_EQ(LastLine(result.out)["steps"], 3);
}

TEST(Cli, AStopSignalSavesAndReportsWhatWasLearned) {
  for (int signal : {SIGINT, SIGTERM}) {
    TestFolder folder;
    const std::string log = folder.File("log.jsonl");
    const std::string out = folder.File("stdout");
    const int pid =
        StartCli({"train", "mlp", "--data", "synthetic", "--epochs", "100000",
                  "--out", folder.File("run"), "--log", log},
                 out);
    for (int wait = 0; wait < 2000; ++wait) {
      if (ReadWholeFile(log).find("\"step\":20,") != std::string::npos) break;
      usleep(10'000);
    }
    kill(pid, signal);
    EXPECT_EQ(WaitCli(pid), 0);
    EXPECT_NE(ReadWholeFile(out).find("stopped early"), std::string::npos);
    const Json summary = LastLine(ReadWholeFile(log));
    EXPECT_EQ(summary["event"], "summary");
    EXPECT_EQ(summary["stopped"], true);
    EXPECT_GE(summary["steps"], 20);
    const CliResult eval = RunCli({"eval", "--from", folder.File("run"),
                                   "--data", "synthetic", "--json"});
    EXPECT_EQ(LastLine(eval.out)["weights_sha256"], summary["weights_sha256"]);
  }
}

TEST(Cli, KillDuringTrainingNeverLeavesBrokenWeights) {
  TestFolder folder;
  const Args eval = {"eval",   "--from",    folder.File("run"),
                     "--data", "synthetic", "--json"};
  for (int round = 0; round < 12; ++round) {
    // 8 steps to an epoch: most of the time goes into saving and testing.
    const int pid = StartCli(
        {"train", "mlp", "--data", "synthetic", "--batch", "512", "--epochs",
         "100000", "--overwrite", "--out", folder.File("run")},
        folder.File("stdout"));
    // However slow the machine is: the first one lives until it has saved once.
    const std::string weights = folder.File("run") + "/weights.safetensors";
    for (int wait = 0; round == 0 && wait < 6000; ++wait) {
      if (access(weights.c_str(), F_OK) == 0) break;
      usleep(10'000);
    }
    usleep(static_cast<useconds_t>(40'000 + 37'000 * round));
    kill(pid, SIGKILL);
    WaitCli(pid);
    const CliResult result = RunCli(eval);
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
}

TEST(Cli, TheLogTellsTheWholeRun) {
  TestFolder folder;
  const std::string log = folder.File("log.jsonl");
  ASSERT_EQ(RunCli({"train", "mlp", "--data", "synthetic", "--batch", "1024",
                    "--epochs", "2", "--log", log})
                .exit_code,
            0);
  const std::string text = ReadWholeFile(log);
  std::vector<std::string> events;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const Json line = Json::parse(text.substr(at, end - at), nullptr, false);
    ASSERT_TRUE(line.is_object());
    events.push_back(line["event"]);
    at = end + 1;
  }
  const std::vector<std::string> want = {"start", "step",  "step",  "step",
                                         "step",  "epoch", "step",  "step",
                                         "step",  "step",  "epoch", "summary"};
  EXPECT_EQ(events, want);
}

}  // namespace
}  // namespace thimble
