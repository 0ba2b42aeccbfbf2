// SPDX-License-Identifier: Apache-2.0
//
// The command-line tool from outside: `inspect` and `export`, of what `train`
// has left.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <string>

#include "base/test_folder.h"
#include "expect_cli.h"
#include "run_cli.h"

namespace thimble {
namespace {

Args TrainCnn(const std::string& run, const Args& more = {}) {
  return Args{"train", "cnn",     "--data", "synthetic", "--batch",
              "32",    "--steps", "6",      "--out",     run} +
         more;
}

Json JsonOf(const Args& args) {
  const CliResult result = RunCli(args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return Json::parse(result.out, nullptr, false);
}

uint64_t SumOf(const Json& list, const char* key) {
  uint64_t sum = 0;
  for (const Json& one : list) sum += one[key].get<uint64_t>();
  return sum;
}

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Cli, InspectListsWhatThePlanSaid) {
  const TestFolder folder;
  const std::string run = folder.File("run");
  const Args sparse = {"--nonzero", "0.3", "--pattern", "2x1"};
  ASSERT_EQ(RunCli(TrainCnn(run, sparse)).exit_code, 0);
  const Json plan =
      JsonOf(Args{"plan", "cnn", "--data", "synthetic", "--json"} + sparse);
  const Json file = JsonOf({"inspect", run, "--json"});
  EXPECT_EQ(file["path"], run + "/weights.safetensors");
  EXPECT_EQ(file["format"], "thimble-weights-1");
  EXPECT_EQ(file["model"], "cnn");
  EXPECT_EQ(file["steps"], 6);
  EXPECT_EQ(file["sealed"], true);
  EXPECT_EQ(file["file_bytes"],
            ReadWholeFile(run + "/weights.safetensors").size());
  EXPECT_EQ(file["tensor_bytes"], SumOf(file["tensors"], "bytes"));
  const Json& of = file["sparse"];
  EXPECT_EQ(of["nonzero"], 0.3);
  for (const char* key : {"pattern", "index", "index_bytes", "kept_blocks"}) {
    EXPECT_EQ(of[key], plan["sparse"][key]) << key;
  }
  EXPECT_EQ(of["type"], "F32");
  ASSERT_EQ(of["weights"].size(), plan["sparse"]["weights"].size());
  for (const char* key : {"blocks", "kept_blocks", "bytes", "dense_bytes"}) {
    EXPECT_EQ(of[key], SumOf(of["weights"], key)) << key;
  }
  EXPECT_EQ(of["weights"][0]["name"], "conv2.weight");
  EXPECT_EQ(of["weights"][0]["shape"], Json({32, 16, 3, 3}));
  EXPECT_EQ(of["weights"][0]["blocks"], 32 * 16 * 9 / 2);
  const CliResult table = RunCli({"inspect", run});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_TRUE(Has(table.out, "weights.safetensors: cnn after step 6\n"));
  EXPECT_TRUE(Has(table.out, "its checksum fits"));
  for (const char* list : {"tensors", "sparse"}) {
    for (const Json& one : list[0] == 't' ? file[list] : of["weights"]) {
      EXPECT_TRUE(Has(table.out, "  " + one["name"].get<std::string>() + " "));
      EXPECT_TRUE(Has(table.out, std::to_string(one["bytes"].get<int>())));
    }
  }
  // And the checkpoint, with what else there is of each value.
  const Json checkpoint =
      JsonOf({"inspect", run + "/checkpoint.safetensors", "--json"});
  EXPECT_EQ(checkpoint["model"], "cnn");
  EXPECT_EQ(checkpoint["steps"], 6);
  EXPECT_EQ(checkpoint["sparse"], of);
  EXPECT_EQ(checkpoint["tensors"].back()["name"], "sparse.velocity");
}

struct Depth {
  double layers = 0;
  double terms = 0;  // of the longest chain of additions
};

Depth DepthOf(const Json& file) {
  Depth depth;
  for (const Json& tensor : file["tensors"]) {
    const Json& shape = tensor["shape"];
    if (shape.size() < 2) continue;
    double terms = 1;
    for (size_t i = 1; i < shape.size(); ++i) terms *= shape[i].get<double>();
    depth.terms += terms;
    depth.layers += 1;
  }
  return depth;
}

TEST(Cli, ExportedWeightsAreTestedAsTheSparseOnes) {
  for (const char* precision : {"f32", "f16", "bf16"}) {
    SCOPED_TRACE(precision);
    const TestFolder folder;
    const std::string run = folder.File("run"), dense = folder.File("dense");
    ASSERT_EQ(
        RunCli(TrainCnn(run, {"--nonzero", "0.3", "--precision", precision}))
            .exit_code,
        0);
    ASSERT_EQ(mkdir(dense.c_str(), 0700), 0);
    const std::string to = dense + "/weights.safetensors";
    const CliResult done = RunCli({"export", run, "--dense", to});
    ASSERT_EQ(done.exit_code, 0) << done.err;
    EXPECT_TRUE(Has(done.out, "3 made dense")) << done.out;
    const Json file = JsonOf({"inspect", dense, "--json"});
    EXPECT_TRUE(file["sparse"].is_null());
    EXPECT_TRUE(file["sealed"]);
    const Json from = JsonOf({"inspect", run, "--json"});
    EXPECT_EQ(file["tensors"].size(), from["tensors"].size() + 3 - 2);
    const auto test = [](const std::string& of) {
      return JsonOf({"eval", "--from", of, "--data", "synthetic", "--json"});
    };
    const Json before = test(run), after = test(dense);
    EXPECT_EQ(before["images"], after["images"]);
    const double loss = before["test_loss"].get<double>();
    // Sums of f32 are added up in another order, and what they give may be
    // rounded to the other neighbour where each layer is stored.
    const Depth depth = DepthOf(file);
    double bound = std::ldexp(depth.terms, -24);
    if (precision[1] == '1') bound += std::ldexp(depth.layers, -11);
    if (precision[0] == 'b') bound += std::ldexp(depth.layers, -8);
    bound *= 1 + loss;
    EXPECT_LE(std::abs(loss - after["test_loss"].get<double>()), bound);
    if (precision[1] != '3') continue;
    EXPECT_EQ(before["test_accuracy"], after["test_accuracy"]);
  }
}

TEST(Cli, ExportReplacesNothingUnlessItIsTold) {
  const TestFolder folder;
  const std::string run = folder.File("run"), to = folder.File("dense");
  // Of dense weights too: then it is a copy.
  ASSERT_EQ(RunCli(TrainCnn(run)).exit_code, 0);
  const Args command = {"export", run, "--dense", to};
  WriteTestFile(to, "precious");
  ExpectRefused(command, 1, "replace it with --overwrite");
  EXPECT_TRUE(ReadWholeFile(to) == "precious");
  const CliResult done = RunCli(command + Args{"--overwrite"});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_TRUE(Has(done.out, "none made dense")) << done.out;
  EXPECT_EQ(RunCli({"inspect", to}).exit_code, 0);
  ExpectRefused(
      {"export", run, "--dense", run + "/weights.safetensors", "--overwrite"},
      2, "is the file that is read");
  ExpectRefused(
      {"export", run + "/checkpoint.safetensors", "--dense", to, "--overwrite"},
      1, "is a checkpoint; give the weights that `thimble train");
  ExpectRefused({"export", run, "--dense", folder.File("no/dense")}, 1,
                "no/dense");
  ExpectRefused({"export", run, "--dense", ""}, 2, "--dense: its value is");
  ExpectRefused({"export", run}, 2, "--dense is required");
  ExpectRefused({"export", "--dense", to}, 2, "DIR is required");
  ExpectRefused({"inspect"}, 2, "PATH is required");
  ExpectRefused({"inspect", ""}, 2, "PATH: its value is empty");
  ExpectRefused({"inspect", folder.path()}, 1,
                "weights.safetensors is not there; give a file, or the folder "
                "that `thimble train --out`");
  ExpectRefused({"inspect", folder.File("nothing")}, 1, "nothing");
}

TEST(Cli, InspectRefusesDamageAndPrintsNoEscapes) {
  const TestFolder folder;
  const std::string run = folder.File("run");
  const std::string path = run + "/weights.safetensors";
  ASSERT_EQ(RunCli(TrainCnn(run, {"--nonzero", "0.3"})).exit_code, 0);
  const std::string good = ReadWholeFile(path);
  std::string bad = good;
  bad[good.size() / 2] = static_cast<char>(bad[good.size() / 2] ^ 1);
  WriteTestFile(path, bad);
  ExpectRefused({"inspect", run}, 1, "is damaged: its checksum does not fit");
  WriteTestFile(path, good);
  ChangeMetadata(path, [](Json& meta) {
    meta["model"] = "\x1b[31mred";
    meta["steps"] = "18446744073709551615";
  });
  const CliResult shown = RunCli({"inspect", run});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_TRUE(Has(shown.out, "?[31mred after step 18446744073709551615"));
  EXPECT_TRUE(Has(shown.out, "it has no checksum"));
  EXPECT_FALSE(Has(shown.out, "\x1b"));
  ChangeMetadata(path,
                 [](Json& meta) { meta["sparse weights shapes"] = "1,2"; });
  ExpectRefused({"inspect", run}, 1, "was changed: what the file says of its");
  ExpectRefused({"export", run, "--dense", folder.File("dense")}, 1,
                "was changed: what the file says of its");
  ExpectRefused({"eval", "--from", run, "--data", "synthetic"}, 1,
                "what the file says of its sparse weights makes no sense");
}

}  // namespace
}  // namespace thimble
