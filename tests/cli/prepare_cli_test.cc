// SPDX-License-Identifier: Apache-2.0
//
// `thimble data prepare` from outside: what it says, refuses and leaves.
#include <glob.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>
#include <string>

#include "expect_cli.h"

namespace thimble {
namespace {

class PrepareCli : public ::testing::Test {
 protected:
  PrepareCli() {
    Write("train", "ein kleiner hund\nzwei hunde\n", "a small dog\ntwo dogs\n");
    Write("test2016", "ein hund\nzwei x\n", "a dog\ntwo x\n");
  }

  void Write(const std::string& name, const std::string& source,
             const std::string& target) {
    WriteTestFile(folder_.File(name + ".de"), source);
    WriteTestFile(folder_.File(name + ".en"), target);
  }
  // So much text that somebody can interrupt.
  void WriteMuch() {
    std::mt19937 random(1);
    std::string lines;
    for (int i = 0; i < 800'000; ++i) {
      lines += std::to_string(random() % 2000) + (i % 8 == 7 ? "\n" : " ");
    }
    Write("train", lines, lines);
  }
  Args Command(const Args& more = {}) const {
    return Args{"data",     "prepare", folder_.path(), "--source", "de",
                "--target", "en",      "--out",        out_} +
           more;
  }
  // Starts it, and waits until it writes.
  int Start() {
    const int pid = StartCli(Command(), folder_.File("said"));
    for (int wait = 0; wait < 30'000 && !IsWriting(); ++wait) usleep(1000);
    return pid;
  }
  bool IsWriting() const {
    glob_t found;
    const int none = glob((out_ + ".tmp.*").c_str(), 0, nullptr, &found);
    if (none == 0) globfree(&found);
    return none == 0;
  }

  TestFolder folder_;
  const std::string out_ = folder_.File("out");
};

TEST_F(PrepareCli, SaysWhatItMade) {
  const CliResult result = RunCli(
      Command({"--test", "test2016", "--merges", "3", "--max-length", "9"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out,
            "train  1 pair: 8 tokens of de, 8 of en; longest 8 and 8\n"
            "       left out: 0 with an empty side, 1 longer than 9 tokens, 0 "
            "of too different lengths\n"
            "test   2 pairs: 11 tokens of de, 10 of en; longest 6 and 5\n"
            "       unknown tokens: 4 (36.36%) of de, 3 (30.00%) of en\n"
            "3 codes; the vocabulary of de has 16 tokens, that of en 16\n"
            "written to " +
                out_ + "\n");
  const Json facts =
      Json::parse(ReadTestFile(out_ + "/prepared.json"), nullptr, false);
  ASSERT_FALSE(facts.is_discarded());
  EXPECT_EQ(facts["languages"], (Json{"de", "en"}));
  EXPECT_EQ(facts["splits"]["train"]["pairs"], 1);
  EXPECT_EQ(facts["sha256"].size(), 5u);
}

TEST_F(PrepareCli, RefusesWrongCommandLinesWithCode2) {
  for (const Args& args :
       {Args{"data", "prepare"},
        Args{"data", "prepare", folder_.path(), "--source", "de"},
        Command({"--merges", "-1"}), Command({"--max-length", "1"}),
        Command({"--codes", "c", "--merges", "3"}), Command({"--codes", ""}),
        Command({"--source", "a/b"}), Command({"--ratio", "0.5"}),
        Command({"--memory", "much"})}) {
    EXPECT_EQ(RunCli(args).exit_code, 2) << ::testing::PrintToString(args);
  }
}

TEST_F(PrepareCli, RefusesBadTextWithCode1) {
  WriteTestFile(folder_.File("train.en"), "a\n\xff\n");
  ExpectRefused(Command(), 1, "train.en:2: byte 1 of the line is no UTF-8");
  WriteTestFile(folder_.File("train.en"), "a\n");
  ExpectRefused(Command(), 1, "train.de has 2 lines and ");
  WriteTestFile(folder_.File("train.en"), "a\nb\n");
  ExpectRefused(Command({"--max-length", "2"}), 1, "than --max-length 2");
  ASSERT_EQ(RunCli(Command()).exit_code, 0);
  ExpectRefused(Command(), 1,
                "is there already; remove it, or choose another "
                "--out");
  // The folder of the text is not what is trained on.
  ExpectRefused({"data", "prepare", folder_.File("none"), "--source", "de",
                 "--target", "en"},
                1, "none is no folder");
}

TEST_F(PrepareCli, CtrlCLeavesNothing) {
  WriteMuch();
  const int pid = Start();
  kill(pid, SIGINT);
  EXPECT_EQ(WaitCli(pid), 1);
  EXPECT_NE(ReadTestFile(folder_.File("said.err"))
                .find("thimble: stopped; nothing was written"),
            std::string::npos)
      << ReadTestFile(folder_.File("said.err"));
  EXPECT_FALSE(IsWriting());
  EXPECT_NE(access(out_.c_str(), F_OK), 0);
}

TEST_F(PrepareCli, WhatAKillLeavesTheNextOneRemoves) {
  WriteMuch();
  const int pid = Start();
  kill(pid, SIGKILL);
  EXPECT_EQ(WaitCli(pid), -1);
  EXPECT_TRUE(IsWriting());
  EXPECT_NE(access(out_.c_str(), F_OK), 0);
  Write("train", "a\n", "b\n");
  EXPECT_EQ(RunCli(Command()).exit_code, 0);
  EXPECT_FALSE(IsWriting());
}

TEST_F(PrepareCli, AFullDiskIsAnErrorThatLeavesNothing) {
  // As much as a process may write stands for as much as a disk holds.
  WriteMuch();
  for (const rlim_t bytes : {1024u, 100'000u}) {
    const CliResult result = RunCli(Command({"--merges", "100"}), [bytes] {
      const rlimit limit = {bytes, bytes};
      setrlimit(RLIMIT_FSIZE, &limit);
    });
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_NE(result.err.find("File too large"), std::string::npos)
        << result.err;
    EXPECT_FALSE(IsWriting());
    EXPECT_NE(access(out_.c_str(), F_OK), 0);
  }
}

}  // namespace
}  // namespace thimble
