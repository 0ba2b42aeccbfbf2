// SPDX-License-Identifier: Apache-2.0
//
// Downloads by `thimble data get`, from a server on this machine; nothing is
// fetched from elsewhere.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "data/download.h"
#include "data_cli.h"

namespace thimble {
namespace {

TEST_F(DataCli, DownloadsUnpacksAndThenHasNothingToDo) {
  const Server server(served_, log_, {});
  EXPECT_TRUE(Has(RunCli({"data", "list"}).out, "not here"));
  ExpectComplete(Get(server.Url(kArchive)));
  EXPECT_EQ(Requests(), "/cifar-10-binary.tar.gz whole\n");
  ExpectComplete(Get(server.Url(kArchive)));
  EXPECT_EQ(Requests(), "/cifar-10-binary.tar.gz whole\n");
  EXPECT_TRUE(Has(RunCli({"data", "list"}).out, "in " + target_));
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

// The server would go on for ever.
TEST_F(DataCli, EndsADownloadThatIsLongerThanWhatIsWanted) {
  const Server server(served_, log_, {"--endless"});
  const std::string path = folder_.File("part");
  const auto file = OpenForDownload(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  uint64_t most = 0;
  const auto progress = [&](uint64_t bytes) { most = std::max(most, bytes); };
  const Status fresh = Download(server.Url(kArchive), *file, 5000, progress);
  EXPECT_TRUE(Has(fresh.message(), "longer than 5.00 kB")) << fresh.message();
  EXPECT_EQ(ReadTestFile(path), "");
  // What a right server has sent before is not lost to a wrong one.
  WriteTestFile(path, archive_.substr(0, 1000));
  const auto again = OpenForDownload(path);
  ASSERT_TRUE(again.ok()) << again.status().message();
  const Status resumed = Download(server.Url(kArchive), *again, 5000, progress);
  EXPECT_TRUE(Has(resumed.message(), "longer than 5.00 kB"));
  EXPECT_TRUE(ReadTestFile(path) == archive_.substr(0, 1000));
  EXPECT_LE(most, 5001u);
}

TEST_F(DataCli, EndsADownloadAtThePublishedSize) {
  const Server server(served_, log_, {"--endless"});
  WriteHollowPart(170'052'171 - 10);
  const CliResult result =
      RunCli({"data", "get", "cifar10", "--from", server.Url(kArchive)});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(Has(result.err, "longer than 170.05 MB")) << result.err;
  EXPECT_TRUE(Has(result.err, "is kept")) << result.err;
  EXPECT_EQ(PartBytes(), 170'052'171 - 10);
  EXPECT_TRUE(Has(Requests(), "bytes=170052161-")) << Requests();
}

TEST_F(DataCli, EndsADownloadOfUnknownSizeAtALimit) {
  const Server server(served_, log_, {"--endless"});
  const std::string sums = ReadTestFile(sums_);
  WriteTestFile(sums_, sums.substr(0, sums.rfind('\n', sums.size() - 2) + 1));
  constexpr int64_t kLimit = int64_t{1} << 30;
  WriteHollowPart(kLimit - 10);
  const CliResult result = Get(server.Url(kArchive));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(Has(result.err, "longer than 1.07 GB")) << result.err;
  EXPECT_EQ(PartBytes(), kLimit - 10);
}

TEST_F(DataCli, StartsAnewWhenThereIsMoreThanThePublishedSize) {
  const Server server(served_, log_, {});
  WriteHollowPart(170'052'172);
  const CliResult result =
      RunCli({"data", "get", "cifar10", "--from", server.Url(kArchive)});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_FALSE(Has(Requests(), "bytes=")) << Requests();
  EXPECT_TRUE(Has(result.err, "SHA-256")) << result.err;
}

TEST_F(DataCli, ReportsTheLimitOnAFilesSize) {
  const Server server(served_, log_, {});
  {
    const FileSizeLimit limit(1024);
    const CliResult result = Get(server.Url(kArchive));
    EXPECT_EQ(result.exit_code, 1);
    for (const std::string& text :
         {"cannot write " + part_, std::string("ulimit -f")}) {
      EXPECT_TRUE(Has(result.err, text)) << result.err;
    }
    EXPECT_EQ(PartBytes(), 1024);
  }
  ExpectComplete(Get(server.Url(kArchive)));
  EXPECT_TRUE(Has(Requests(), "bytes=1024-")) << Requests();
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

}  // namespace
}  // namespace thimble
