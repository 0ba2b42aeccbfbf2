// SPDX-License-Identifier: Apache-2.0
//
// Nothing once good is lost: what `train` finds on the disk and must not
// replace.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/test_folder.h"
#include "expect_cli.h"
#include "run_cli.h"

namespace thimble {
namespace {

const Args kTrain = {"train", "mlp", "--data", "synthetic", "--threads", "1"};

std::string Weights(const std::string& dir) {
  return dir + "/weights.safetensors";
}

std::string Checkpoint(const std::string& dir) {
  return dir + "/checkpoint.safetensors";
}

Args Resumed(const std::string& dir) {
  return kTrain + Args{"--steps", "2", "--out", dir, "--resume"};
}

class Kept : public testing::Test {
 protected:
  // A finished run of two steps.
  void TrainTwoSteps() { ASSERT_EQ(RunCli(Resumed(run_)).exit_code, 0); }

  TestFolder folder_;
  std::string run_ = folder_.File("run");
};

// One step is an epoch here. The third one's weights are finite, but no loss
// can be computed from them.
TEST_F(Kept, CheckpointOfAnEpochBeforeTrainingDiverged) {
  const Args args =
      kTrain + Args{"--batch", "4096", "--lr", "0.05", "--out", run_};
  const Args diverging = {"--epochs", "4", "--schedule", "steps:0.5=1e32"};
  ExpectRefused(args + diverging, 1, "checkpoint of step 2 in " + run_);
  const std::string kept = ReadTestFile(Checkpoint(run_));
  EXPECT_NE(kept.find("\"progress\":\"2 "), std::string::npos);
  const CliResult test =
      RunCli({"eval", "--from", run_, "--data", "synthetic", "--json"});
  EXPECT_EQ(test.exit_code, 0) << test.err;
  const Json figures = Json::parse(test.out, nullptr, false);
  EXPECT_LT(figures["test_loss"], 3) << test.out;
  // It can be gone on with, and diverges where it did.
  ExpectRefused(args + diverging + Args{"--resume"}, 1,
                "diverged: after step 3");
  EXPECT_EQ(ReadTestFile(Checkpoint(run_)), kept);
}

TEST_F(Kept, NothingIsSavedOfAFirstStepThatDiverged) {
  for (const char* rate : {"1e30", "3e38"}) {
    ExpectRefused(kTrain + Args{"--steps", "1", "--lr", rate}, 1, "diverged");
    ExpectRefused(kTrain + Args{"--steps", "1", "--lr", rate, "--out", run_}, 1,
                  "diverged");
    EXPECT_NE(access(Weights(run_).c_str(), F_OK), 0);
    EXPECT_NE(access(Checkpoint(run_).c_str(), F_OK), 0);
  }
}

TEST_F(Kept, WeightsWithoutACheckpointAreNotStartedOver) {
  TrainTwoSteps();
  const std::string weights = ReadTestFile(Weights(run_));
  const std::string checkpoint = ReadTestFile(Checkpoint(run_));
  ASSERT_EQ(unlink(Checkpoint(run_).c_str()), 0);
  ExpectRefused(Resumed(run_), 1, "no checkpoint.safetensors to go on from");
  // Nor where it is a link that leads nowhere, or no file.
  ASSERT_EQ(symlink("nowhere", Checkpoint(run_).c_str()), 0);
  ExpectRefused(Resumed(run_), 1, Checkpoint(run_));
  ExpectRefused(kTrain + Args{"--steps", "2", "--out", run_}, 1,
                "holds a run already");
  ASSERT_EQ(unlink(Checkpoint(run_).c_str()), 0);
  ASSERT_EQ(mkdir(Checkpoint(run_).c_str(), 0777), 0);
  ExpectRefused(Resumed(run_), 1, "not a regular file");
  ASSERT_EQ(rmdir(Checkpoint(run_).c_str()), 0);
  EXPECT_EQ(ReadTestFile(Weights(run_)), weights);
  // A checkpoint without weights is what a kill between the two leaves.
  WriteTestFile(Checkpoint(run_), checkpoint);
  ASSERT_EQ(unlink(Weights(run_).c_str()), 0);
  EXPECT_EQ(RunCli(Resumed(run_)).exit_code, 0);
  EXPECT_EQ(ReadTestFile(Weights(run_)), weights);
}

// The first file that a run makes is its checkpoint.
TEST_F(Kept, AKillWithinTheFirstSaveIsHarmless) {
  const Args args =
      kTrain + Args{"--epochs", "100000", "--batch", "4096", "--out", run_};
  const int pid = StartCli(args, folder_.File("stdout"));
  for (int wait = 0; wait < 60'000; ++wait) {
    const bool has_weights = access(Weights(run_).c_str(), F_OK) == 0;
    const bool has_checkpoint = access(Checkpoint(run_).c_str(), F_OK) == 0;
    EXPECT_TRUE(has_checkpoint || !has_weights);
    if (has_checkpoint) break;
    usleep(100);
  }
  kill(pid, SIGKILL);
  WaitCli(pid);
  EXPECT_EQ(access(Checkpoint(run_).c_str(), F_OK), 0);
}

TEST_F(Kept, ALogWhoseRunCannotStart) {
  const std::string log = folder_.File("log.jsonl");
  const Args args = kTrain + Args{"--steps", "1", "--log", log};
  ASSERT_EQ(RunCli(args).exit_code, 0);
  const std::string before = ReadTestFile(log);
  setenv("THIMBLE_TARGET", "nope", 1);
  ExpectRefused(args, 2, "THIMBLE_TARGET");
  unsetenv("THIMBLE_TARGET");
  EXPECT_EQ(ReadTestFile(log), before);
  TrainTwoSteps();
  const Args other =
      kTrain + Args{"--steps", "3", "--out", run_, "--resume", "--log", log};
  ExpectRefused(other, 1, "steps = 2, now it is 3");
  EXPECT_EQ(ReadTestFile(log), before);
}

TEST_F(Kept, AFileThatIsNoLog) {
  const std::string data = folder_.File("data");
  ASSERT_EQ(mkdir(data.c_str(), 0777), 0);
  const std::string precious = data + "/train-images-idx3-ubyte";
  const std::string bytes = std::string("\0\0\x8\3", 4) + "pixels";
  WriteTestFile(precious, bytes);
  for (const Args& resume : {Args{}, Args{"--out", run_, "--resume"}}) {
    ExpectRefused(kTrain + Args{"--steps", "1", "--log", precious} + resume, 1,
                  "is no log of a run");
    EXPECT_EQ(ReadTestFile(precious), bytes);
  }
  // What was torn in its first line is a log all the same.
  const std::string torn = folder_.File("torn.jsonl");
  WriteTestFile(torn, "{\"eve");
  EXPECT_EQ(RunCli(kTrain + Args{"--steps", "1", "--log", torn}).exit_code, 0);
  EXPECT_EQ(
      RunCli(kTrain + Args{"--steps", "1", "--log", "/dev/null"}).exit_code, 0);
}

TEST_F(Kept, AFolderThatTakesTheNameOfARunningOne) {
  const std::string log = folder_.File("log.jsonl");
  const int pid = StartCli(kTrain + Args{"--epochs", "100000", "--batch",
                                         "4096", "--out", run_, "--log", log},
                           folder_.File("stdout"));
  for (int wait = 0; wait < 6000 && access(Weights(run_).c_str(), F_OK) != 0;
       ++wait) {
    usleep(10'000);
  }
  const std::string moved = folder_.File("moved");
  ASSERT_EQ(rename(run_.c_str(), moved.c_str()), 0);
  ASSERT_EQ(mkdir(run_.c_str(), 0777), 0);
  WriteTestFile(Weights(run_), "another's weights");
  WriteTestFile(Checkpoint(run_), "another's checkpoint");
  usleep(300'000);
  kill(pid, SIGINT);
  EXPECT_EQ(WaitCli(pid), 0);
  EXPECT_EQ(ReadTestFile(Weights(run_)), "another's weights");
  EXPECT_EQ(ReadTestFile(Checkpoint(run_)), "another's checkpoint");
  const std::string said = ReadTestFile(folder_.File("stdout"));
  EXPECT_NE(said.find("weights in " + moved), std::string::npos) << said;
  EXPECT_EQ(RunCli({"eval", "--from", moved, "--data", "synthetic"}).exit_code,
            0);
}

// The same path, names and counts.
TEST_F(Kept, ARunIsNotGoneOnWithOnOtherImages) {
  const std::string data = folder_.File("data");
  ASSERT_EQ(mkdir(data.c_str(), 0777), 0);
  const auto write = [&](char pixel) {
    for (const std::string split : {"train", "t10k"}) {
      const std::string count(1, '\x14');
      WriteTestFile(data + "/" + split + "-images-idx3-ubyte",
                    std::string("\0\0\x8\3\0\0\0", 7) + count +
                        std::string("\0\0\0\2\0\0\0\2", 8) +
                        std::string(79, '\7') + pixel);
      WriteTestFile(
          data + "/" + split + "-labels-idx1-ubyte",
          std::string("\0\0\x8\1\0\0\0", 7) + count + std::string(20, '\1'));
    }
  };
  write('\5');
  // A name that is no text can be trained from and saved, too.
  const std::string odd = folder_.File("odd\xff");
  ASSERT_EQ(symlink(data.c_str(), odd.c_str()), 0);
  const CliResult named =
      RunCli({"train", "mlp", "--data", odd, "--batch", "10", "--out",
              folder_.File("odd"), "--steps", "1"});
  EXPECT_EQ(named.exit_code, 0) << named.err;
  const Args args = {"train", "mlp", "--data",   data,      "--batch", "10",
                     "--out", run_,  "--resume", "--steps", "4"};
  const CliResult first = RunCli(args);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(RunCli(args).exit_code, 0);
  write('\6');
  ExpectRefused(args, 1, "data fingerprint");
}

TEST_F(Kept, ACheckpointThatIsALinkToNothingIsRefusedWithAdvice) {
  TrainTwoSteps();
  ASSERT_EQ(unlink(Checkpoint(run_).c_str()), 0);
  ASSERT_EQ(symlink("gone", Checkpoint(run_).c_str()), 0);
  ExpectRefused(Resumed(run_), 1,
                "No such file or directory; it is a link to nothing: mend or "
                "remove it");
}

TEST_F(Kept, ACheckpointOfAnotherVersionIsNotCalledDamaged) {
  TrainTwoSteps();
  const auto write_format = [&](const char* format) {
    ChangeMetadata(Checkpoint(run_),
                   [&](Json& metadata) { metadata["format"] = format; });
  };
  // The first version wrote no seal.
  write_format("thimble-checkpoint-1");
  ExpectRefused(Resumed(run_), 1,
                Checkpoint(run_) +
                    " was written by another version of Thimble "
                    "(thimble-checkpoint-1; ");
  // One of this version that has lost its seal is.
  write_format("thimble-checkpoint-2");
  ExpectRefused(Resumed(run_), 1, Checkpoint(run_) + " is damaged");
}

}  // namespace
}  // namespace thimble
