// SPDX-License-Identifier: Apache-2.0
//
// `thimble data` and what training does with images, from outside. Downloads
// come from a server on this machine; nothing is fetched from elsewhere.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "base/test_folder.h"
#include "data/test_files.h"
#include "run_cli.h"

namespace thimble {
namespace {

using Json = nlohmann::json;
using Args = std::vector<std::string>;

constexpr const char* kNames[] = {"data_batch_1.bin", "data_batch_2.bin",
                                  "data_batch_3.bin", "data_batch_4.bin",
                                  "data_batch_5.bin", "test_batch.bin"};
constexpr char kArchive[] = "cifar-10-binary.tar.gz";

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// range_server.py in a process of its own; ended with this object.
class Server {
 public:
  Server(const std::string& folder, const std::string& log, const Args& more) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    Args args = {"python3", RANGE_SERVER, folder, log};
    args.insert(args.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      execvp(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    std::FILE* out = fdopen(ends[0], "r");
    EXPECT_EQ(std::fscanf(out, "%d", &port_), 1)
        << "python3 is needed: scripts/install-deps test";
    std::fclose(out);
  }
  ~Server() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::string Url(const std::string& name) const {
    return "http://127.0.0.1:" + std::to_string(port_) + "/" + name;
  }

 private:
  pid_t pid_ = -1;
  int port_ = 0;
};

class DataCli : public testing::Test {
 protected:
  DataCli() {
    setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
    setenv("no_proxy", "127.0.0.1", 1);
    EXPECT_EQ(mkdir(served_.c_str(), 0700), 0);
    std::string tar;
    std::string sums;
    for (uint32_t file = 0; file < 6; ++file) {
      const std::string bytes = Cifar10Records(20, 100 * file);
      tar +=
          TarMember("cifar-10-batches-bin/" + std::string(kNames[file]), bytes);
      sums += Sha256Hex(bytes) + "  " + kNames[file] + "\n";
    }
    archive_ = Gzip(tar + TarEnd());
    EXPECT_GT(archive_.size(), 1000u);
    WriteTestFile(served_ + "/" + kArchive, archive_);
    WriteTestFile(sums_, sums + Sha256Hex(archive_) + "  " + kArchive + "\n");
  }

  CliResult Get(const std::string& from, const Args& more = {}) {
    Args args = {"data", "get", "cifar10", "--from", from, "--sums", sums_};
    args.insert(args.end(), more.begin(), more.end());
    return RunCli(args);
  }

  void ExpectComplete(const CliResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(Has(result.out, "cifar10 is in " + target_)) << result.out;
    for (uint32_t file = 0; file < 6; ++file) {
      EXPECT_TRUE(ReadTestFile(target_ + "/" + kNames[file]) ==
                  Cifar10Records(20, 100 * file));
    }
    EXPECT_NE(access(part_.c_str(), F_OK), 0);
  }

  void WritePart(std::string_view bytes) {
    mkdir(folder_.File("thimble").c_str(), 0700);
    mkdir(folder_.File("thimble/downloads").c_str(), 0700);
    WriteTestFile(part_, bytes);
  }

  std::string Requests() { return ReadWholeFile(log_); }

  TestFolder folder_;
  const std::string served_ = folder_.File("served");
  const std::string sums_ = folder_.File("sums");
  const std::string log_ = folder_.File("requests");
  const std::string target_ = folder_.File("thimble/cifar10");
  const std::string part_ =
      folder_.File("thimble/downloads/cifar-10-binary.tar.gz.part");
  std::string archive_;
};

TEST_F(DataCli, DownloadsUnpacksAndThenHasNothingToDo) {
  const Server server(served_, log_, {});
  EXPECT_TRUE(Has(RunCli({"data", "list"}).out, "not here"));
  ExpectComplete(Get(server.Url(kArchive)));
  EXPECT_EQ(Requests(), "/cifar-10-binary.tar.gz whole\n");
  ExpectComplete(Get(server.Url(kArchive)));
  EXPECT_EQ(Requests(), "/cifar-10-binary.tar.gz whole\n");
  EXPECT_TRUE(Has(RunCli({"data", "list"}).out, "in " + target_));
}

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
}

TEST_F(DataCli, GoesOnFromWhatABrokenDownloadLeft) {
  const Server server(served_, log_, {"--break-after", "1000"});
  const CliResult broken = Get(server.Url(kArchive));
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_TRUE(Has(broken.err, "the same command goes on from it"))
      << broken.err;
  EXPECT_TRUE(ReadTestFile(part_) == archive_.substr(0, 1000));
  ExpectComplete(Get(server.Url(kArchive)));
  EXPECT_EQ(Requests(),
            "/cifar-10-binary.tar.gz whole\n"
            "/cifar-10-binary.tar.gz bytes=1000-\n");
}

TEST_F(DataCli, StartsAnewWhereTheServerSendsNoParts) {
  const Server server(served_, log_, {"--no-ranges"});
  WritePart(archive_.substr(0, 1000));
  ExpectComplete(Get(server.Url(kArchive)));
}

TEST_F(DataCli, StartsAnewWhenThereIsMoreThanTheServerHas) {
  const Server server(served_, log_, {});
  WritePart(archive_ + "more");
  ExpectComplete(Get(server.Url(kArchive)));
}

TEST_F(DataCli, StartsAnewWhenAResumedDownloadIsWrong) {
  const Server server(served_, log_, {});
  WritePart("of another archive");
  ExpectComplete(Get(server.Url(kArchive)));
  EXPECT_EQ(Requests(),
            "/cifar-10-binary.tar.gz bytes=18-\n"
            "/cifar-10-binary.tar.gz whole\n");
}

TEST_F(DataCli, UsesACompleteDownloadWithoutTheServer) {
  WritePart(archive_);
  ExpectComplete(Get("http://127.0.0.1:1/" + std::string(kArchive)));
}

TEST_F(DataCli, RefusesASecondDownloadAtTheSameTime) {
  const Server server(served_, log_, {});
  WritePart("begun");
  const int fd = open(part_.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  const CliResult result = Get(server.Url(kArchive));
  close(fd);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(Has(result.err, "another process is downloading to " + part_))
      << result.err;
  EXPECT_EQ(ReadTestFile(part_), "begun");
  ExpectComplete(Get(server.Url(kArchive)));
}

TEST_F(DataCli, RefusesAndNamesADamagedDownload) {
  const Server server(served_, log_, {});
  std::string damaged = archive_;
  damaged[damaged.size() / 2] ^= 1;
  WriteTestFile(served_ + "/" + kArchive, damaged);
  const CliResult result = Get(server.Url(kArchive));
  EXPECT_EQ(result.exit_code, 1);
  for (const std::string& text :
       {part_ + " is damaged", Sha256Hex(damaged), Sha256Hex(archive_),
        std::string("It was removed")}) {
    EXPECT_TRUE(Has(result.err, text)) << result.err;
  }
  EXPECT_NE(access(part_.c_str(), F_OK), 0);
  EXPECT_NE(access((target_ + "/data_batch_1.bin").c_str(), F_OK), 0);
}

TEST_F(DataCli, SaysWhatToDoWhereTheServerCannotBeReached) {
  const Args cases[] = {{"http://127.0.0.1:1/a", "127.0.0.1"},
                        {"http://no-such-host.invalid/a", "invalid"}};
  for (const Args& each : cases) {
    const CliResult result = Get(each[0]);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.err.rfind("thimble: cannot download " + each[0], 0), 0u)
        << result.err;
    for (const char* text : {"--from", "scripts/get-cifar10-from-npm"}) {
      EXPECT_TRUE(Has(result.err, text)) << result.err;
    }
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1);
  }
  const Server server(served_, log_, {});
  EXPECT_TRUE(Has(Get(server.Url("absent")).err, "404"));
}

TEST_F(DataCli, DownloadsWithWgetAndSaysWhenThereIsNeither) {
  const std::string bin = folder_.File("bin");
  ASSERT_EQ(mkdir(bin.c_str(), 0700), 0);
  const Server server(served_, log_, {"--break-after", "1000"});
  const std::string path = getenv("PATH");
  setenv("PATH", bin.c_str(), 1);
  const CliResult neither = Get(server.Url(kArchive));
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(neither.exit_code, 1);
  EXPECT_TRUE(Has(neither.err, "no curl and no wget")) << neither.err;
  EXPECT_TRUE(Has(neither.err, "scripts/get-cifar10-from-npm"));
  if (access("/usr/bin/wget", X_OK) != 0) GTEST_SKIP() << "no wget here";
  ASSERT_EQ(symlink("/usr/bin/wget", (bin + "/wget").c_str()), 0);
  setenv("PATH", bin.c_str(), 1);
  const CliResult broken = Get(server.Url(kArchive));
  const CliResult resumed = Get(server.Url(kArchive));
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_TRUE(Has(broken.err, "cannot download")) << broken.err;
  ExpectComplete(resumed);
  EXPECT_TRUE(Has(Requests(), "bytes=1000-"));
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
