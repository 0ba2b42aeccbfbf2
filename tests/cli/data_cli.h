// SPDX-License-Identifier: Apache-2.0
//
// For tests of `thimble data` from outside: a small CIFAR-10, its archive and
// sums, and a server on this machine to download from. One thread.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/test_folder.h"
#include "base/test_sha256.h"
#include "data/test_files.h"
#include "run_cli.h"

namespace thimble {

using Args = std::vector<std::string>;

inline constexpr const char* kNames[] = {"data_batch_1.bin", "data_batch_2.bin",
                                         "data_batch_3.bin", "data_batch_4.bin",
                                         "data_batch_5.bin", "test_batch.bin"};
inline constexpr char kArchive[] = "cifar-10-binary.tar.gz";

inline bool Has(const std::string& text, const std::string& part) {
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

  // A download that broke off after `bytes`; all of them are zero, and none
  // takes room.
  void WriteHollowPart(int64_t bytes) {
    WritePart("");
    EXPECT_EQ(truncate(part_.c_str(), bytes), 0);
  }

  int64_t PartBytes() const {
    struct stat info;
    return stat(part_.c_str(), &info) == 0 ? int64_t{info.st_size} : -1;
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

}  // namespace thimble
