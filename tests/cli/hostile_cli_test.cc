// SPDX-License-Identifier: Apache-2.0
//
// The command-line tool from outside, given what nobody means to give it:
// numbers in other bases, empty values, text that a terminal would obey, files
// in the way, output that nobody reads, and signals.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/sha256.h"
#include "base/test_folder.h"
#include "expect_cli.h"
#include "run_cli.h"

namespace thimble {
namespace {

Args Train(const Args& more) {
  return Args{"train", "mlp", "--data", "synthetic", "--threads", "1"} + more;
}

Json PlanOf(const Args& more) {
  const CliResult result = RunCli(Args{"plan", "mlp", "--json"} + more);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return Json::parse(result.out, nullptr, false);
}

TEST(Hostile, NumbersAreDecimal) {
  EXPECT_EQ(PlanOf({"--batch", "0100"})["batch"], 100);
  EXPECT_EQ(PlanOf({"--batch=0100"})["batch"], 100);
  EXPECT_EQ(PlanOf({"--batch", "8", "--microbatch", "08"})["microbatch"], 8);
  EXPECT_EQ(PlanOf({"--threads", "010"})["threads"], 10);
  EXPECT_EQ(PlanOf({"--dropout", "00.5"})["dropout"], 0.5);
  EXPECT_EQ(PlanOf({"--checkpoint", "every-02"})["checkpoint"], "every-2");
}

TEST(Hostile, OptionsWithWholeNumbersTakeNothingElse) {
  const char* no_numbers[] = {"0x10", "0b1", "1'0", "1_0", "+5", "-5",
                              " 5",   "5 ",  "1e1", "5.0", "",   "inf"};
  const Args plan = {"plan", "mlp"};
  const Args fetch = {"reproduce", "fig1"};
  const Args eval = {"eval", "--from", "run", "--data", "synthetic"};
  const std::pair<Args, Args> commands[] = {
      {plan,
       {"--batch", "--microbatch", "--ghost-batch", "--min-microbatch",
        "--threads"}},
      {Train({}),
       {"--epochs", "--steps", "--warmup", "--seed", "--validation"}},
      {eval, {"--batch", "--threads", "--validation"}},
      {fetch, {"--threads"}}};
  for (const auto& [command, options] : commands) {
    for (const std::string& option : options) {
      for (const std::string text : no_numbers) {
        ExpectRefused(command + Args{option, text}, 2,
                      text.empty()
                          ? option + ": its value is empty"
                          : option + ": '" + text + "' is no whole number");
      }
    }
  }
  ExpectRefused(plan + Args{"--batch", "0x10"}, 2,
                "--batch: '0x10' is no whole number from 1 to 16777216");
  ExpectRefused(plan + Args{"--batch", "18446744073709551617"}, 2, "--batch");
  ExpectRefused(Train({"--seed", "10000000000000000000"}), 2,
                "from 0 to 9999999999999999999");
}

TEST(Hostile, OptionsWithDecimalsTakeNothingElse) {
  for (const std::string option :
       {"--momentum", "--weight-decay", "--dropout", "--lr"}) {
    for (const std::string text : {"0x1p-3", "0x0.1", "nan", "inf", "+0.5",
                                   "-0.5", " 0.5", "0.5 ", "1e999", "half"}) {
      ExpectRefused(Train({option, text}), 2,
                    option + ": '" + text + "' is no number ");
    }
    ExpectRefused(Train({option, ""}), 2, option + ": its value is empty");
  }
  ExpectRefused(Train({"--momentum", "1"}), 2, "'1' is no number in [0, 1)");
  // The nearest float is 1.
  ExpectRefused(Train({"--momentum", "0.999999999"}), 2, "--momentum");
  ExpectRefused(Train({"--lr", "0"}), 2, "'0' is no number above 0");
}

TEST(Hostile, NumbersInsideNamesAreDecimal) {
  for (const char* model : {"wrn-28-0x2", "wrn- 28-2", "wrn-28-+2",
                            "resnet-0x14", "resnet- 20", "lstm-1-8-0x1c"}) {
    ExpectRefused({"plan", model}, 2, "'" + std::string(model) + "' is no ");
  }
  for (const char* name : {"every-0x2", "residual- 2", "recursive-+3",
                           "revolve--1", "revolve-1e1", "residual-"}) {
    ExpectRefused({"plan", "mlp", "--checkpoint", name}, 2,
                  "--checkpoint: there is no strategy '" + std::string(name));
  }
  ExpectRefused(Train({"--schedule", "steps:0x0.8=0.1"}), 2,
                "no learning-rate");
  ExpectRefused({"plan", "mlp", "--budget", "0x10MB"}, 2, "not a size");
  ExpectRefused({"plan", "mlp", "--budget", "+5MB"}, 2, "not a size");
}

TEST(Hostile, EmptyNamesAndFilesAreRefused) {
  const std::string says = ": its value is empty";
  ExpectRefused({"plan", ""}, 2, "MODEL" + says);
  ExpectRefused({"train", "", "--data", "synthetic"}, 2, "MODEL" + says);
  ExpectRefused({"reproduce", ""}, 2, "NAME" + says);
  ExpectRefused({"data", "get", ""}, 2, "NAME" + says);
  ExpectRefused({"reproduce", "fig5", "--svg", ""}, 2, "--svg" + says);
  ExpectRefused({"plan", "mlp", "--html", ""}, 2, "--html" + says);
}

// The next argument is not its value.
TEST(Hostile, AnEqualsSignWithNothingBehindItIsAnEmptyValue) {
  const std::string says = ": its value is empty";
  TestFolder folder;
  ASSERT_EQ(mkdir(folder.File("here").c_str(), 0700), 0);
  const auto in_folder = [&] {
    ASSERT_EQ(chdir(folder.File("here").c_str()), 0);
  };
  const CliResult out =
      RunCli(Train({"--steps", "1", "--out=", "--json"}), in_folder);
  EXPECT_EQ(out.exit_code, 2) << out.err;
  EXPECT_NE(out.err.find("--out" + says), std::string::npos) << out.err;
  EXPECT_EQ(rmdir(folder.File("here").c_str()), 0);  // nothing was made in it
  ExpectRefused({"plan", "mlp", "--batch=", "5"}, 2, "--batch" + says);
  ExpectRefused({"plan", "mlp", "--html="}, 2, "--html" + says);
}

TEST(Hostile, ReproduceDoesNotReplaceWhatIsNoFile) {
  TestFolder folder;
  const std::string real = folder.File("real"), link = folder.File("link");
  const std::string pipe = folder.File("pipe");
  WriteTestFile(real, "mine");
  ASSERT_EQ(symlink(real.c_str(), link.c_str()), 0);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {link, pipe, folder.path()}) {
    ExpectRefused(
        {"reproduce", "fig1", "--svg", path}, 1,
        "cannot write " + path + ": it is there and is not a regular");
  }
  struct stat info;
  ASSERT_EQ(lstat(link.c_str(), &info), 0);
  EXPECT_TRUE(S_ISLNK(info.st_mode));
  ASSERT_EQ(lstat(pipe.c_str(), &info), 0);
  EXPECT_TRUE(S_ISFIFO(info.st_mode));
  EXPECT_EQ(ReadTestFile(real), "mine");
}

TEST(Hostile, EvalPrintsNullForALossThatIsNoNumber) {
  TestFolder folder;
  const std::string run = folder.File("run");
  ASSERT_EQ(RunCli(Train({"--steps", "1", "--out", run})).exit_code, 0);
  const std::string path = run + "/weights.safetensors";
  ChangeMetadata(path, [](Json&) {});
  // The last floats are infinities now.
  std::string file = ReadTestFile(path);
  for (size_t at = file.size() - 40; at < file.size(); at += 4) {
    file.replace(at, 4, std::string("\0\0\x80\x7f", 4));
  }
  WriteTestFile(path, file);
  const CliResult result =
      RunCli({"eval", "--from", run, "--data", "synthetic", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(result.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << result.out;
  EXPECT_TRUE(json["test_loss"].is_null()) << result.out;
  EXPECT_EQ(json["model"], "mlp");
}

// Whether there is anything but printed characters and line ends.
bool HasControls(const std::string& text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n') || byte == 0x7f || byte >= 0xf8) return true;
  }
  return false;
}

TEST(Hostile, TextFromElsewhereCannotSteerTheTerminal) {
  const std::string evil = "\x1b]0;owned\x07\n\x1b[2J\xff";
  TestFolder folder;
  ASSERT_EQ(mkdir(folder.File(evil).c_str(), 0700), 0);
  const Args commands[] = {
      {"plan", evil},
      {evil},
      {"plan", "mlp", "--" + evil},
      {"plan", "mlp", "--batch", evil},
      {"plan", "mlp", "--checkpoint", evil},
      {"plan", "mlp", "--budget", evil},
      {"plan", "mlp", "--html", folder.File(evil)},
      {"reproduce", evil},
      {"data", "get", evil},
      {"eval", "--from", folder.File(evil), "--data", "synthetic"},
      {"train", "mlp", "--data", folder.File(evil)}};
  for (const Args& command : commands) {
    const CliResult result = RunCli(command);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_FALSE(HasControls(result.err)) << result.err;
    // One line, and the one that names --help.
    EXPECT_LE(std::count(result.err.begin(), result.err.end(), '\n'), 2)
        << result.err;
    EXPECT_NE(result.err.find("?]0;owned??"), std::string::npos) << result.err;
  }
  const CliResult trained =
      RunCli(Train({"--steps", "1", "--out", folder.File(evil)}));
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_NE(trained.out.find("weights in "), std::string::npos);
  EXPECT_FALSE(HasControls(trained.out)) << trained.out;
}

TEST(Hostile, AModelsNameInAFileCannotSteerTheTerminal) {
  TestFolder folder;
  const std::string run = folder.File("run");
  ASSERT_EQ(RunCli(Train({"--steps", "1", "--out", run})).exit_code, 0);
  const std::string path = run + "/weights.safetensors";
  ChangeMetadata(path, [](Json& metadata) {
    metadata["model"] = "\x1b[31mred\nthimble: all is well";
  });
  const CliResult result =
      RunCli({"eval", "--from", run, "--data", "synthetic"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_FALSE(HasControls(result.err)) << result.err;
  EXPECT_NE(result.err.find("'?[31mred?thimble: all is well'"),
            std::string::npos)
      << result.err;
}

TEST(Hostile, OutputThatNobodyCanReadIsAFailure) {
  const Args commands[] = {{"plan", "mlp"},
                           {"plan", "mlp", "--json"},
                           {"plan", "mlp", "--explain"},
                           {"data", "list"},
                           {"reproduce", "fig1"},
                           {"--help"},
                           {"plan", "--help"},
                           {"--version"},
                           Train({"--steps", "1", "--json"})};
  for (const Args& command : commands) {
    for (const bool closed : {true, false}) {
      const CliResult result = RunCli(command, [closed] {
        if (closed) {
          close(STDOUT_FILENO);
        } else {
          dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO);
        }
      });
      EXPECT_EQ(result.exit_code, 1) << ::testing::PrintToString(command);
      EXPECT_NE(result.err.find(
                    "thimble: the output could not be written to its end: "),
                std::string::npos)
          << ::testing::PrintToString(command) << result.err;
    }
  }
}

TEST(Hostile, ClosedInputAndErrorsDoNotMatter) {
  const CliResult result = RunCli({"plan", "mlp", "--json"}, [] {
    close(STDIN_FILENO);
    close(STDERR_FILENO);
  });
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(Json::parse(result.out, nullptr, false)["model"], "mlp");
}

TEST(Hostile, AFileThatMayNotGrowIsAnErrorInEveryCommand) {
  TestFolder folder;
  std::string sums;
  const std::string record(3073, '\0');
  for (const char* name :
       {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
        "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}) {
    WriteTestFile(folder.File(name), record);
    Sha256 hash;
    hash.Update(std::as_bytes(std::span(record)));
    sums += Hex(hash.Final()) + "  " + name + "\n";
  }
  WriteTestFile(folder.File("sums"), sums);
  const std::string made = folder.File("made");
  const Args commands[] = {{"plan", "mlp", "--html", made},
                           {"reproduce", "fig1", "--svg", made},
                           Train({"--steps", "1", "--out", made}),
                           {"data", "get", "cifar10", "--from", folder.path(),
                            "--sums", folder.File("sums"), "--data-dir", made}};
  for (const Args& command : commands) {
    const CliResult result = RunCli(command, [] {
      const rlimit limit = {1024, 1024};
      setrlimit(RLIMIT_FSIZE, &limit);
    });
    EXPECT_EQ(result.exit_code, 1) << command[0] << result.err;
    EXPECT_NE(result.err.find("File too large"), std::string::npos)
        << command[0] << result.err;
  }
}

// Waits until `path` holds `text`; false where the log has ended before.
bool WaitForLine(const std::string& path, const std::string& text) {
  for (int wait = 0; wait < 3000; ++wait) {
    const std::string log = ReadWholeFile(path);
    if (log.find(text) != std::string::npos) return true;
    if (log.find("\"summary\"") != std::string::npos) return false;
    usleep(10'000);
  }
  return false;
}

TEST(Hostile, SignalsThatWereIgnoredStayIgnored) {
  TestFolder folder;
  const std::string log = folder.File("log.jsonl");
  const int pid = StartCli(Train({"--epochs", "100000", "--log", log}),
                           folder.File("out"), [] {
                             signal(SIGHUP, SIG_IGN);
                             signal(SIGINT, SIG_IGN);
                           });
  ASSERT_TRUE(WaitForLine(log, "\"step\":5,"));
  kill(pid, SIGHUP);
  kill(pid, SIGINT);
  const std::string text = ReadWholeFile(log);
  const size_t last = text.rfind("\"step\":", text.rfind('\n')) + 7;
  const int later = std::atoi(text.c_str() + last) + 20;
  EXPECT_TRUE(WaitForLine(log, "\"step\":" + std::to_string(later) + ","));
  kill(pid, SIGTERM);
  EXPECT_EQ(WaitCli(pid), 0);
  EXPECT_EQ(LastLine(ReadWholeFile(log))["stopped"], true);
}

TEST(Hostile, AnySecondSignalEndsTheProcessAtOnce) {
  const std::pair<int, int> pairs[] = {
      {SIGINT, SIGTERM}, {SIGTERM, SIGHUP}, {SIGHUP, SIGINT}, {SIGINT, SIGINT}};
  for (const auto& [first, second] : pairs) {
    TestFolder folder;
    const std::string log = folder.File("log.jsonl");
    // A step takes longer than anything here, and is not broken off.
    const int pid =
        StartCli({"train", "wrn-16-2", "--data", "synthetic-cifar", "--batch",
                  "1000", "--microbatch", "10", "--threads", "1", "--log", log},
                 folder.File("out"));
    EXPECT_TRUE(WaitForLine(log, "\"start\""));
    kill(pid, first);
    usleep(50'000);
    EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), 0) << "one was enough";
    kill(pid, second);
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == second)
        << first << ", " << second << ": " << status;
  }
}

}  // namespace
}  // namespace thimble
