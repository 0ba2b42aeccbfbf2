// SPDX-License-Identifier: Apache-2.0
//
// `thimble data` without a download, and what training does with images, from
// outside.
#include "data_cli.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

namespace thimble {
namespace {

using Json = nlohmann::json;

TEST_F(DataCli, ListsComputedSetsAsAlwaysThere) {
  const std::string list = RunCli({"data", "list"}).out;
  for (const std::string name : {"synthetic ", "synthetic-cifar "}) {
    const size_t entry = list.find("\n" + name);
    ASSERT_NE(entry, std::string::npos) << list;
    const size_t second = list.find('\n', entry + 1) + 1;
    EXPECT_TRUE(Has(list.substr(second, list.find('\n', second) - second),
                    "always there"))
        << list;
  }
  EXPECT_TRUE(Has(list, "get it with `thimble data get cifar10`")) << list;
}

TEST_F(DataCli, ListSaysWhyAFolderCannotBeLookedAt) {
  const std::string loop = folder_.File("loop");
  ASSERT_EQ(symlink(loop.c_str(), loop.c_str()), 0);
  const CliResult result = RunCli({"data", "list", "--data-dir", loop});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(Has(result.out, "Too many levels of symbolic links"))
      << result.out;
  EXPECT_FALSE(Has(result.out, "not here")) << result.out;
}

TEST_F(DataCli, TakesAnArchiveOrAFolderToo) {
  ExpectComplete(Get(served_ + "/" + kArchive));
  const std::string other = folder_.File("other");
  const CliResult copied = Get(target_, {"--data-dir", other});
  EXPECT_EQ(copied.exit_code, 0) << copied.err;
  EXPECT_TRUE(ReadTestFile(other + "/test_batch.bin") ==
              Cifar10Records(20, 500));
  // Without --sums only the published files will do.
  const CliResult refused = RunCli({"data", "get", "cifar10", "--from", other,
                                    "--data-dir", folder_.File("third")});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_TRUE(Has(refused.err, "data_batch_1.bin of " + other)) << refused.err;
}

TEST_F(DataCli, RefusesWrongCommandLinesWithCode2) {
  for (const Args& args :
       {Args{"data"},
        {"data", "get"},
        {"data", "get", "imagenet"},
        {"data", "get", "cifar10", "--from", "ftp://host/a"}}) {
    const CliResult result = RunCli(args);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_EQ(result.err.rfind("thimble: ", 0), 0u) << result.err;
  }
}

// Training on a folder in the official layout.
class CifarTraining : public DataCli {
 protected:
  void SetUp() override { ExpectComplete(Get(served_ + "/" + kArchive)); }

  // The summary, with the log's first line under "start".
  Json Train(const Args& more) {
    Args args = {"train",   "cnn", "--data", target_, "--batch", "10",
                 "--steps", "12",  "--log",  log_,    "--json"};
    args.insert(args.end(), more.begin(), more.end());
    const CliResult result = RunCli(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    Json summary = Json::parse(result.out, nullptr, false);
    const std::string log = ReadWholeFile(log_);
    summary["start"] = Json::parse(log.substr(0, log.find('\n')));
    return summary;
  }
};

TEST_F(CifarTraining, AugmentsByDefaultWithTheSameBitsOnAnyThreads) {
  const Json usual = Train({"--threads", "1"});
  EXPECT_EQ(usual["start"]["augment"], "crop-flip");
  EXPECT_EQ(usual["start"]["train_images"], 100);
  EXPECT_EQ(usual["start"]["test_images"], 20);
  for (const Args& same :
       {Args{"--threads", "2"}, {"--augment", "crop-flip", "--threads", "1"}}) {
    EXPECT_EQ(Train(same)["weights_sha256"], usual["weights_sha256"]);
  }
  const Json plain = Train({"--augment", "none"});
  EXPECT_EQ(plain["start"]["augment"], "none");
  EXPECT_NE(plain["weights_sha256"], usual["weights_sha256"]);
}

TEST_F(CifarTraining, HoldsOutImagesForValidation) {
  const std::string out = folder_.File("run");
  const Json held = Train({"--validation", "30", "--out", out});
  EXPECT_EQ(held["start"]["train_images"], 70);
  EXPECT_EQ(held["start"]["test_images"], 30);
  const CliResult eval = RunCli({"eval", "--from", out, "--data", target_,
                                 "--validation", "30", "--json"});
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  const Json tested = Json::parse(eval.out, nullptr, false);
  EXPECT_EQ(tested["images"], 30);
  EXPECT_EQ(tested["test_accuracy"], held["test_accuracy"]);
  const CliResult told =
      RunCli({"eval", "--from", out, "--data", target_, "--validation", "30"});
  EXPECT_TRUE(Has(told.out, "cnn on 30 validation images: ")) << told.out;
  const CliResult all =
      RunCli({"train", "cnn", "--data", target_, "--validation", "100"});
  EXPECT_EQ(all.exit_code, 2);
  EXPECT_TRUE(Has(all.err, "cannot hold out 100 of the 100")) << all.err;
}

TEST_F(CifarTraining, RefusesWhatItDoesNotKnow) {
  const CliResult result =
      RunCli({"train", "cnn", "--data", target_, "--augment", "cutout"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(Has(result.err, "none or crop-flip")) << result.err;
  // By its name, it must be the whole of it.
  const CliResult named = RunCli({"train", "cnn", "--data", "cifar10"});
  EXPECT_EQ(named.exit_code, 1);
  EXPECT_TRUE(Has(named.err, target_ + "/data_batch_1.bin")) << named.err;
}

}  // namespace
}  // namespace thimble
