// SPDX-License-Identifier: Apache-2.0
//
// Planned equals measured: the resident memory that the tool's process gains in
// training, tests and saving is the arena and at most 2.6 MB besides, of which
// the plan says how much; from its start to its end it takes less than 4 MB
// beside. And a limit that cannot hold that is told before it runs. Not built
// under sanitizers, whose shadow memory would be measured instead.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/test_folder.h"
#include "data/test_files.h"
#include "run_cli.h"

namespace thimble {
namespace {

// The kernel maps a file's pages in pieces as large as they lie in its cache,
// and a linker leaves them there in other pieces than a reader: up to 0.5 MB of
// the tool's resident code would depend on who has written it. So it is read
// from the disk anew, as on a user's machine.
void DropFromPageCache(const char* path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0) << path;
  EXPECT_EQ(fsync(file), 0);
  EXPECT_EQ(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), 0);
  close(file);
}

using Json = nlohmann::json;

// Twenty images of CIFAR-10's form to train on and six to test with: deep
// networks take long for one.
class FewImages {
 public:
  FewImages() {
    for (uint32_t part = 0; part < 5; ++part) {
      WriteTestFile(
          folder_.File("data_batch_" + std::to_string(part + 1) + ".bin"),
          Cifar10Records(4, 4 * part));
    }
    WriteTestFile(folder_.File("test_batch.bin"), Cifar10Records(6, 20));
  }
  const std::string& path() const { return folder_.path(); }

 private:
  TestFolder folder_;
};

// Twenty of MNIST's form, and six.
class FewDigits {
 public:
  FewDigits() {
    WriteTestFile(folder_.File("train-images-idx3-ubyte"),
                  IdxImages(20, 28, 28));
    WriteTestFile(folder_.File("train-labels-idx1-ubyte"), IdxLabels(20));
    WriteTestFile(folder_.File("t10k-images-idx3-ubyte"), IdxImages(6, 28, 28));
    WriteTestFile(folder_.File("t10k-labels-idx1-ubyte"), IdxLabels(6));
  }
  const std::string& path() const { return folder_.path(); }

 private:
  TestFolder folder_;
};

struct Run {
  std::string model, data, batch, steps;
  std::vector<std::string> options = {};
};

void CheckMemory(const Run& run) {
  SCOPED_TRACE(run.model + " batch " + run.batch);
  const TestFolder folder;
  std::vector<std::string> args = {"train",
                                   run.model,
                                   "--data",
                                   run.data,
                                   "--batch",
                                   run.batch,
                                   "--steps",
                                   run.steps,
                                   "--threads",
                                   "2",
                                   "--json",
                                   "--out",
                                   folder.File("out"),
                                   "--log",
                                   folder.File("log.jsonl")};
  args.insert(args.end(), run.options.begin(), run.options.end());
  const CliResult result = RunCli(args);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto summary = Json::parse(result.out, nullptr, false);
  const std::string log = ReadWholeFile(folder.File("log.jsonl"));
  const auto start = Json::parse(log.substr(0, log.find('\n')), nullptr, false);
  const int64_t announced = start["plan"]["bytes"]["beside_arena"];
  const int64_t arena = summary["arena_bytes"];
  const int64_t base = summary["rss_base_bytes"];
  const int64_t over =
      static_cast<int64_t>(summary["rss_peak_bytes"]) - base - arena;
  EXPECT_GT(base, 0);
  EXPECT_LE(over, announced);
  if (run.options.empty()) {
    EXPECT_LE(announced, 2'550'000);
  }
  // And the arena is really used: a plan far above the truth would be no
  // promise either.
  EXPECT_GE(over, -arena / 10);
  testing::Test::RecordProperty(run.model + "-" + run.batch,
                                std::to_string(over));
}

TEST(Memory, PeakRssOverBaseIsTheArenaAndWhatThePlanAnnounces) {
  DropFromPageCache(THIMBLE_CLI);
  for (const char* model : {"mlp", "cnn"}) {
    for (const char* batch : {"32", "256"}) {
      CheckMemory({model, "synthetic", batch, "6"});
    }
  }
  const FewImages images;  // the synthetic ones are many to test with
  CheckMemory({"wrn-28-2", images.path(), "20", "6"});
}

// What is kept for each op, and each tensor that is saved, shows here: up to
// eleven thousand ops and two thousand tensors.
TEST(Memory, ManyOpsAndTensorsTakeLittleMore) {
  DropFromPageCache(THIMBLE_CLI);
  const FewImages images;
  for (const char* model : {"wrn-40-1", "resnet-110", "resnet-164"}) {
    CheckMemory({model, images.path(), "4", "2"});
  }
  CheckMemory({"resnet-1001", images.path(), "2", "1"});
  const FewDigits digits;
  CheckMemory({"lstm-1-128-784", digits.path(), "4", "2"});
}

// With all that a rewiring touches, and what is kept of each name: of 108
// sparse weights in one network, of a thousand in another.
TEST(Memory, OfSparseWeightsAndBF16IsWhatThePlanAnnounces) {
  DropFromPageCache(THIMBLE_CLI);
  const FewImages images;
  const auto check = [&](const char* model, const char* batch,
                         const std::vector<std::string>& options) {
    CheckMemory({model, images.path(), batch, "4", options});
  };
  const std::vector<std::string> sparse = {"--nonzero", "0.3", "--rewire-every",
                                           "2"};
  check("wrn-28-2", "20", sparse);
  check("resnet-110", "4", sparse);
  check("resnet-1001", "2", sparse);
  check("wrn-28-2", "20", {"--precision", "bf16"});
  check("wrn-28-2", "20",
        {"--precision", "bf16", "--nonzero", "0.2", "--pattern", "2x2",
         "--rewire", "set", "--rewire-every", "2"});
  check("wrn-28-2", "20",
        {"--precision", "f16", "--microbatch", "10", "--checkpoint",
         "residual-2*", "--nonzero", "0.2", "--optimizer-state", "u8",
         "--gradients", "none", "--rewire-every", "2"});
}

// The base is the plan, and what the program needs to go on.
TEST(Memory, TheProcessIsSmallBeforeTheArenaIsTaken) {
  DropFromPageCache(THIMBLE_CLI);
  const CliResult result =
      RunCli({"train", "cnn", "--data", "synthetic", "--steps", "1", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto summary = Json::parse(result.out, nullptr, false);
  EXPECT_LT(summary["rss_base_bytes"], 1'500'000);
}

// Of one run, from its start to its end, what is no arena.
int64_t BesideArena(const std::vector<std::string>& options) {
  std::vector<std::string> args = {"train",   "wrn-28-2", "--threads", "2",
                                   "--steps", "5",        "--json"};
  args.insert(args.end(), options.begin(), options.end());
  const CliResult result = RunCli(args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto summary = Json::parse(result.out, nullptr, false);
  const int64_t process = summary["rss_process_peak_bytes"];
  EXPECT_GE(process, summary["rss_peak_bytes"].get<int64_t>());
  return process - summary["arena_bytes"].get<int64_t>();
}

// The program and its planning included. With planning's code, heap and stack
// kept, and without pieces, it took 5.5 MB.
TEST(Memory, TheWholeProcessTakesLittleBesideTheArena) {
  DropFromPageCache(THIMBLE_CLI);
  const FewImages images;
  const std::pair<std::string, std::string> data[] = {
      {images.path(), "20"}, {"synthetic-cifar", "100"}};
  for (const auto& [set, batch] : data) {
    const int64_t beside = BesideArena(
        {"--precision", "bf16", "--nonzero", "0.3", "--microbatch", "10",
         "--budget", "6.7MB", "--data", set, "--batch", batch});
    EXPECT_LE(beside, 3'500'000) << set;
    testing::Test::RecordProperty("beside-" + batch, std::to_string(beside));
  }
  // Whose plan takes more to find than the arena has.
  EXPECT_LE(
      BesideArena({"--precision", "f16", "--nonzero", "0.1", "--microbatch",
                   "4", "--sparse-index", "packed", "--budget", "2.5MB",
                   "--data", images.path(), "--batch", "20"}),
      4'000'000);
}

// Runs the tool with a limit of its own.
CliResult RunWithin(__rlimit_resource resource, rlim_t bytes,
                    const std::vector<std::string>& args) {
  rlimit before{};
  EXPECT_EQ(getrlimit(resource, &before), 0);
  const rlimit low{.rlim_cur = bytes, .rlim_max = before.rlim_max};
  EXPECT_EQ(setrlimit(resource, &low), 0);
  CliResult result = RunCli(args);
  EXPECT_EQ(setrlimit(resource, &before), 0);
  return result;
}

TEST(Memory, ALimitThatCannotHoldTheArenaIsToldBeforeTraining) {
  const std::vector<std::string> train = {
      "train", "wrn-28-2", "--data", "synthetic-cifar", "--batch",
      "100",   "--steps",  "1000",   "--threads",       "2"};
  const CliResult space = RunWithin(RLIMIT_AS, 200'000'000, train);
  EXPECT_EQ(space.exit_code, 1);
  EXPECT_NE(space.err.find("more than the 200.00 MB of `ulimit -v`"),
            std::string::npos)
      << space.err;
  const CliResult data = RunWithin(RLIMIT_DATA, 150'000'000, train);
  EXPECT_EQ(data.exit_code, 1);
  EXPECT_NE(data.err.find("more than the 150.00 MB of `ulimit -d`"),
            std::string::npos)
      << data.err;
}

// The least that a run of sparse weights can be limited to is enough for all of
// it; with a page less it does not begin.
TEST(Memory, ALimitDecidesBeforeTrainingWhetherSparseWeightsFit) {
  const TestFolder folder;
  const FewImages images;
  const std::vector<std::string> train = {"train",
                                          "wrn-10-1",
                                          "--data",
                                          images.path(),
                                          "--batch",
                                          "4",
                                          "--steps",
                                          "20",
                                          "--threads",
                                          "1",
                                          "--nonzero",
                                          "0.3",
                                          "--rewire-every",
                                          "2",
                                          "--json",
                                          "--out",
                                          folder.File("out"),
                                          "--overwrite",
                                          "--log",
                                          folder.File("log.jsonl")};
  const auto page = static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  const CliResult free = RunCli(train);
  ASSERT_EQ(free.exit_code, 0) << free.err;
  const auto wanted = Json::parse(free.out, nullptr, false);
  const rlim_t arena = wanted["arena_bytes"].get<rlim_t>();
  // In pages: too few for the program and the arena, and more than enough.
  rlim_t low = arena / page, high = (arena + (64 << 20)) / page;
  while (high - low > 1) {
    const rlim_t middle = (low + high) / 2;
    const CliResult result = RunWithin(RLIMIT_AS, middle * page, train);
    (result.exit_code == 0 ? high : low) = middle;
  }
  std::filesystem::remove_all(folder.File("out"));
  const CliResult refused = RunWithin(RLIMIT_AS, low * page, train);
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_NE(refused.err.find("cannot be had: with the "), std::string::npos)
      << refused.err;
  EXPECT_NE(access(folder.File("out").c_str(), F_OK), 0);
  const CliResult fits = RunWithin(RLIMIT_AS, high * page, train);
  ASSERT_EQ(fits.exit_code, 0) << fits.err;
  const auto summary = Json::parse(fits.out, nullptr, false);
  EXPECT_EQ(summary["weights_sha256"], wanted["weights_sha256"]);
  EXPECT_EQ(summary["rewirings"], 9);
}

TEST(Memory, ARefusedRunLeavesNoFolderThatItMade) {
  const TestFolder folder;
  const std::string kept = folder.File("kept");
  ASSERT_EQ(mkdir(kept.c_str(), 0777), 0);
  for (const std::string& out : {folder.File("new"), kept + "/a/b", kept}) {
    const CliResult result =
        RunWithin(RLIMIT_AS, 200'000'000,
                  {"train", "wrn-28-2", "--data", "synthetic-cifar", "--batch",
                   "100", "--steps", "1000", "--threads", "2", "--out", out});
    EXPECT_NE(result.err.find("`ulimit -v`"), std::string::npos) << result.err;
  }
  EXPECT_NE(access(folder.File("new").c_str(), F_OK), 0);
  EXPECT_EQ(rmdir(kept.c_str()), 0) << "is gone, or holds what was made in it";
}

TEST(Memory, TheArenaIsRoundedInTheRefusalAsInThePlan) {
  const CliResult result =
      RunWithin(RLIMIT_AS, 200'000'000,
                {"train", "wrn-28-2", "--data", "synthetic-cifar", "--batch",
                 "100", "--steps", "1000", "--threads", "2"});
  // "arena 206.78 MB, process beside it …"
  ASSERT_EQ(result.out.rfind("arena ", 0), 0u) << result.out;
  const std::string arena = result.out.substr(6, result.out.find(',') - 6);
  EXPECT_NE(result.err.find("an arena of " + arena + " cannot be had"),
            std::string::npos)
      << result.err;
}

TEST(Memory, ALimitThatCannotHoldThePlanIsNamed) {
  const CliResult result = RunWithin(RLIMIT_DATA, 6'000 * 1024,
                                     {"plan", "resnet-1001", "--threads", "1"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("`ulimit -d` allows this process 6000 kB"),
            std::string::npos)
      << result.err;
}

TEST(Memory, ThreadsAreAsManyAsTheCpusThatTheProcessMayUse) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const CliResult result = RunCli({"plan", "mlp", "--json"});
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  const auto plan = Json::parse(result.out, nullptr, false);
  EXPECT_EQ(plan["threads"], 1);
}

}  // namespace
}  // namespace thimble
