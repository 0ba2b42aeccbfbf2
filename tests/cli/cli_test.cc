// SPDX-License-Identifier: Apache-2.0
//
// The command-line tool from outside: what it refuses, what it trains and
// leaves on disk. plan_cli_test.cc has plans and budgets.
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

TEST(Cli, RefusesWrongCommandLinesWithCode2) {
  const std::string commands =
      "the commands are plan, train, eval, data, reproduce";
  ExpectRefused({}, 2, "subcommand is required; " + commands);
  ExpectRefused({"foo"}, 2, "there is no command 'foo'; " + commands);
  ExpectRefused({"foo", "cnn", "--json"}, 2, "no command 'foo'; " + commands);
  ExpectRefused({"data", "put"}, 2,
                "there is no command 'put'; the commands are list, get");
  ExpectRefused({"plan", "resnext"}, 2, "the models are: mlp, cnn");
  ExpectRefused({"plan", "resnet-111"}, 2, "6n+2");
  ExpectRefused({"plan", "lstm-1-16"}, 2, "lstm-LAYERS-HIDDEN-STEPS");
  ExpectRefused({"train", "lstm-1-16-27", "--data", "synthetic"}, 2,
                "use a number of steps that divides");
  ExpectRefused({"plan", "cnn", "--colour"}, 2, "--colour");
  ExpectRefused({"plan", "cnn", "--batch", "0"}, 2, "--batch");
  ExpectRefused({"plan", "cnn", "--batch", "many"}, 2, "--batch");
  ExpectRefused({"plan", "cnn", "--threads", "0"}, 2, "--threads");
  ExpectRefused({"plan", "cnn", "--budget", "6.7XB"}, 2, "6.7MB");
  ExpectRefused({"plan", "cnn", "--momentum", "1.5"}, 2, "momentum");
  ExpectRefused({"plan", "cnn", "--allow", "f16"}, 2, "not available yet");
  ExpectRefused({"plan", "cnn", "--allow", "exact,sparse"}, 2,
                "'sparse' is not available yet");
  ExpectRefused({"plan", "cnn", "--allow", "inexact"}, 2,
                "none of exact, microbatch, f16, sparse");
  ExpectRefused({"plan", "cnn", "--min-microbatch", "0"}, 2,
                "--min-microbatch");
  ExpectRefused({"plan", "cnn", "--min-microbatch", "101"}, 2,
                "between 1 and the batch of 100, got 101");
  ExpectRefused({"reproduce", "fig7"}, 2, "fig1, fig5, table3, chen-resnet");
  ExpectRefused({"reproduce", "table3"}, 2, "--memory-only");
  ExpectRefused({"train", "cnn"}, 2, "--data");
  ExpectRefused({"train", "cnn", "--data", "imagenet"}, 2, "fashion-mnist");
  ExpectRefused({"train", "cnn", "--data", "synthetic", "--lr", "-1"}, 2,
                "--lr");
  ExpectRefused({"train", "cnn", "--data", "synthetic", "--schedule", "up"}, 2,
                "cosine");
  ExpectRefused({"train", "cnn", "--data", "synthetic", "--batch", "100000"}, 2,
                "smaller --batch");
  ExpectRefused(
      {"train", "cnn", "--data", "synthetic", "--epochs", "2", "--steps", "5"},
      2, "--steps");
}

TEST(Cli, RefusesEmptyValuesAsOfAnUnsetShellVariable) {
  const Args train = {"train", "mlp", "--data", "synthetic", "--steps", "2"};
  for (const char* option :
       {"--out", "--log", "--budget", "--data-dir", "--schedule", "--augment",
        "--checkpoint", "--allow"}) {
    ExpectRefused(train + Args{option, ""}, 2,
                  std::string(option) + ": its value is empty");
  }
  ExpectRefused({"eval", "--from", "", "--data", "synthetic"}, 2, "--from");
  ExpectRefused({"data", "get", "cifar10", "--from", ""}, 2, "--from");
}

TEST(Cli, RefusesNegativeCountsInAPlainSentence) {
  const Args train = {"train", "mlp", "--data", "synthetic", "--steps", "2"};
  for (const char* option : {"--validation", "--warmup"}) {
    for (const char* value : {"-1", "1.5", "9999999999999999999"}) {
      ExpectRefused(train + Args{option, value}, 2,
                    std::string(option) + ": '" + value +
                        "' is no whole number from 0 to 1000000000000000000");
    }
  }
}

TEST(Cli, TakesF32AndSaysThatOtherPrecisionsAreNotThere) {
  const Args plan = {"plan", "mlp", "--json"};
  EXPECT_EQ(RunCli(plan + Args{"--precision", "f32"}).out, RunCli(plan).out);
  EXPECT_EQ(RunCli({"train", "mlp", "--data", "synthetic", "--steps", "1",
                    "--precision", "f32", "--checkpoint", "none"})
                .exit_code,
            0);
  for (const char* other : {"f16", "bf16", "f8", ""}) {
    ExpectRefused(plan + Args{"--precision", other}, 2,
                  "only f32 is there so far");
  }
}

TEST(Cli, HelpHasAnExampleForEveryCommand) {
  for (const Args& command : {Args{},
                              {"plan"},
                              {"train"},
                              {"eval"},
                              {"data"},
                              {"reproduce"},
                              {"data", "list"},
                              {"data", "get"}}) {
    const CliResult result = RunCli(command + Args{"--help"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_NE(result.out.find("Example:\n  thimble "), std::string::npos);
    EXPECT_EQ(result.out.find("Options::"), std::string::npos) << result.out;
  }
  EXPECT_EQ(RunCli({"--version"}).exit_code, 0);
}

TEST(Cli, ReproducePrintsATableOrCsvAndDraws) {
  const TestFolder folder;
  const std::string svg = folder.path() + "/fig1.svg";
  const CliResult text = RunCli({"reproduce", "fig1", "--svg", svg});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("404.8"), std::string::npos) << text.out;
  EXPECT_EQ(text.err, "");  // progress is for terminals
  EXPECT_EQ(ReadWholeFile(svg).rfind("<svg ", 0), 0u);
  const CliResult csv = RunCli({"reproduce", "fig1", "--csv"});
  EXPECT_EQ(csv.exit_code, 0) << csv.err;
  EXPECT_EQ(csv.out.rfind("row,\"paper MB\",", 0), 0u) << csv.out;
  ExpectRefused({"reproduce", "fig1", "--svg", folder.path() + "/no/x.svg"}, 1,
                "no/x.svg");
  const CliResult notes = RunCli({"reproduce", "chen-lstm", "--quick"});
  EXPECT_NE(notes.out.find("whole of a step (--sharing off)"),
            std::string::npos)
      << notes.out;
}

TEST(Cli, TrainsInMicrobatchesToTheSameBitsForAnyThreadCount) {
  std::string weights;
  for (const char* threads : {"1", "2"}) {
    TestFolder folder;
    const std::string log = folder.File("log.jsonl");
    const CliResult result = RunCli(
        {"train", "cnn", "--data", "synthetic", "--batch", "20", "--microbatch",
         "5", "--steps", "3", "--threads", threads, "--json", "--log", log});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const Json summary = Json::parse(result.out, nullptr, false);
    if (weights.empty()) weights = summary["weights_sha256"];
    EXPECT_EQ(summary["weights_sha256"], weights);
    const std::string text = ReadTestFile(log);
    const Json start =
        Json::parse(text.substr(0, text.find('\n')), nullptr, false);
    EXPECT_EQ(start["plan"]["microbatch"], 5);
  }
}

TEST(Cli, MemoryOptimisationsCanBeSwitchedOffForTheSameWeights) {
  const auto train = [](const Args& more) {
    TestFolder folder;
    const std::string log = folder.File("log.jsonl");
    const CliResult result =
        RunCli(Args{"train", "mlp", "--data", "synthetic", "--batch", "10",
                    "--steps", "3", "--threads", "1", "--json", "--log", log} +
               more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::string text = ReadTestFile(log);
    Json both = Json::parse(text.substr(0, text.find('\n')), nullptr, false);
    both["summary"] = Json::parse(result.out, nullptr, false);
    return both;
  };
  const Json usual = train({});
  Json before = usual;
  const Args switches = {"--sharing", "off", "--inplace", "off"};
  for (size_t given = 2; given <= switches.size(); given += 2) {
    const Json got = train({switches.begin(), switches.begin() + given});
    EXPECT_EQ(got["plan"][switches[given - 2].substr(2)], false);
    EXPECT_EQ(got["summary"]["weights_sha256"],
              usual["summary"]["weights_sha256"]);
    EXPECT_GT(got["plan"]["bytes"]["arena"], before["plan"]["bytes"]["arena"]);
    before = got;
  }
  // Of fused ops only agreement within rounding is promised.
  const auto arena = [](const char* fuse) {
    const CliResult result =
        RunCli({"plan", "cnn", "--batch", "10", "--fuse", fuse, "--json"});
    const Json plan = Json::parse(result.out, nullptr, false);
    EXPECT_EQ(plan["fuse"], fuse == std::string("on"));
    return plan["bytes"]["arena"].get<int64_t>();
  };
  EXPECT_GT(arena("off"), arena("on"));
  for (const char* key : {"inplace", "sharing", "fuse"}) {
    EXPECT_EQ(usual["plan"][key], true) << key;
    const std::string option = "--" + std::string(key);
    ExpectRefused({"plan", "cnn", option, "no"}, 2, option);
    ExpectRefused({"plan", "cnn", option, "no"}, 2, "neither on nor off");
  }
}

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
                "mlp, cnn and wrn-D-K have");
}

// An MNIST-like folder of zeros with four images; `break_it` may then damage
// it.
void WriteTinyIdx(const TestFolder& folder) {
  const std::string images = {0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 28, 0, 0, 0, 28};
  const std::string labels = {0, 0, 8, 1, 0, 0, 0, 4, 0, 1, 2, 3};
  for (const char* split : {"train", "t10k"}) {
    const std::string name = split;
    WriteTestFile(folder.File(name + "-images-idx3-ubyte"),
                  images + std::string(4 * 784, '\0'));
    WriteTestFile(folder.File(name + "-labels-idx1-ubyte"), labels);
  }
}

TEST(Cli, RefusesDamagedDataFilesWithCode1AndNamesThem) {
  TestFolder folder;
  const Args train = {"train",   "mlp", "--data",  folder.path(),
                      "--batch", "2",   "--steps", "2"};
  ExpectRefused({"train", "mlp", "--data", folder.File("nowhere")}, 1,
                "nowhere");
  ExpectRefused(train, 1, "train-images-idx3-ubyte");
  WriteTinyIdx(folder);
  EXPECT_EQ(RunCli(train).exit_code, 0);

  const std::string path = folder.File("train-images-idx3-ubyte");
  const std::string good = ReadWholeFile(path);
  WriteTestFile(path, good.substr(0, good.size() - 1));
  ExpectRefused(train, 1, path);
  std::string magic = good;
  magic[2] = 9;
  WriteTestFile(path, magic);
  ExpectRefused(train, 1, path);
  unlink(path.c_str());
  WriteTestFile(path + ".gz", "this is not gzip at all");
  ExpectRefused(train, 1, path + ".gz");
}

TEST(Cli, RefusesPlacesThatItCannotWrite) {
  const Args train = {"train", "mlp", "--data", "synthetic", "--steps", "2"};
  ExpectRefused(train + Args{"--log", "/nowhere/run.jsonl"}, 1,
                "/nowhere/run.jsonl");
  ExpectRefused(train + Args{"--out", "/dev/null/run"}, 1, "/dev/null");
  ExpectRefused({"eval", "--from", "/nowhere", "--data", "synthetic"}, 1,
                "thimble train --out");
}

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
