// SPDX-License-Identifier: Apache-2.0
//
// The command-line tool from outside: command lines, help, and what is refused.
// plan_cli_test.cc, train_cli_test.cc and eval_cli_test.cc have the rest.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>

#include "base/test_folder.h"
#include "expect_cli.h"
#include "run_cli.h"

namespace thimble {
namespace {

TEST(Cli, RefusesWrongCommandLinesWithCode2) {
  const std::string commands =
      "the commands are plan, train, eval, translate, inspect, export, data, "
      "reproduce";
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
  ExpectRefused({"plan", "cnn", "--nesterov", "--no-nesterov"}, 2,
                "--no-nesterov excludes --nesterov");
  ExpectRefused({"plan", "cnn", "--beta1", "0.8"}, 2,
                "--beta1: is for --optimizer adam and adamw");
  ExpectRefused({"plan", "cnn", "--optimizer", "adam", "--momentum", "0.8"}, 2,
                "--momentum: is for --optimizer sgd");
  ExpectRefused({"plan", "cnn", "--rounding", "nearest"}, 2,
                "--rounding: is for weights or state in 16 bits");
  ExpectRefused({"plan", "cnn", "--allow", "inexact"}, 2,
                "none of exact, microbatch, f16, bf16, sparse");
  ExpectRefused({"plan", "cnn", "--min-microbatch", "0"}, 2,
                "--min-microbatch");
  ExpectRefused({"plan", "cnn", "--min-microbatch", "101"}, 2,
                "between 1 and the batch of 100, got 101");
  ExpectRefused({"reproduce", "fig7"}, 2, "fig1, fig5, table3, chen-resnet");
  ExpectRefused({"reproduce", "table3", "--steps", "0"}, 2, "--steps");
  ExpectRefused({"reproduce", "fig1", "--csv", "--json"}, 2, "--csv");
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

TEST(Cli, TakesAPrecisionForAllTensorsOrForARole) {
  const Args plan = {"plan", "mlp", "--json"};
  EXPECT_EQ(RunCli(plan + Args{"--precision", "f32"}).out, RunCli(plan).out);
  EXPECT_EQ(RunCli(plan + Args{"--parameters", "bf16", "--gradients", "bf16",
                               "--activations", "bf16"})
                .out,
            RunCli(plan + Args{"--precision", "bf16"}).out);
  EXPECT_NE(RunCli(plan + Args{"--precision", "f16", "--gradients", "f32"})
                .out.find("\"precision\":\"parameters f16, gradients f32, "
                          "activations f16\""),
            std::string::npos);
  for (const char* other : {"f8", "F16", "half", "u8"}) {
    ExpectRefused(plan + Args{"--precision", other}, 2,
                  "f32, f16 and bf16 are");
  }
}

TEST(Cli, TableSaysWhatTheStateIsStoredInWhereItIsNotAsTheWeight) {
  const Args plan = {"plan", "mlp", "--threads", "1", "--precision", "f16"};
  for (const Args& same : {Args{}, Args{"--optimizer-state", "f16"}}) {
    EXPECT_NE(RunCli(plan + same).out.find(" f16, 1 thread"),
              std::string::npos);
  }
  const std::pair<const char*, std::string> others[] = {
      {"f32", "f32"}, {"u8", "u8 in blocks of 64"}};
  for (const auto& [type, text] : others) {
    EXPECT_NE(RunCli(plan + Args{"--optimizer-state", type})
                  .out.find(" f16, optimizer state " + text + ", 1 thread"),
              std::string::npos);
  }
}

TEST(Cli, TakesGradientsInBytesOrNoneAtAll) {
  const Args plan = {"plan", "mlp", "--json"};
  for (const char* how : {"u8", "none"}) {
    const CliResult result = RunCli(plan + Args{"--gradients", how});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.out.find("gradients " + std::string(how)),
              std::string::npos);
  }
  ExpectRefused(plan + Args{"--gradients", "u4"}, 2,
                "f32, f16 and bf16 are; here also u8 and none");
  ExpectRefused(plan + Args{"--optimizer-state", "none"}, 2,
                "f32, f16 and bf16 are; here also u8");
  // Plain momentum is what several microbatches have by default.
  const Args parts = plan + Args{"--gradients", "none", "--microbatch", "10"};
  EXPECT_EQ(RunCli(parts).exit_code, 0);
  EXPECT_EQ(RunCli(parts).out, RunCli(parts + Args{"--no-nesterov"}).out);
  ExpectRefused(parts + Args{"--nesterov"}, 2,
                "use plain momentum (--no-nesterov), or one microbatch");
  ExpectRefused(plan + Args{"--gradients", "none", "--optimizer", "adam"}, 2,
                "use SGD, or gradients in 8 bits (--gradients u8)");
  ExpectRefused(parts + Args{"--momentum", "0"}, 2, "a --momentum above 0");
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
  const CliResult object = RunCli({"reproduce", "fig1", "--json"});
  EXPECT_EQ(Json::parse(object.out, nullptr, false)["columns"][0], "paper MB")
      << object.out;
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

}  // namespace
}  // namespace thimble
