// SPDX-License-Identifier: Apache-2.0
//
// Planned equals measured: the resident memory that the tool's process gains in
// training is the arena and at most 1 MB besides. Not built under sanitizers,
// whose shadow memory would be measured instead.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/test_folder.h"
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

void CheckMemory(const char* model, const char* data, const char* batch) {
  SCOPED_TRACE(std::string(model) + " batch " + batch);
  const TestFolder folder;
  const CliResult result =
      RunCli({"train", model, "--data", data, "--batch", batch, "--steps", "6",
              "--threads", "2", "--json", "--out", folder.File("out"), "--log",
              folder.File("log.jsonl")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto summary = nlohmann::json::parse(result.out, nullptr, false);
  const int64_t arena = summary["arena_bytes"];
  const int64_t base = summary["rss_base_bytes"];
  const int64_t peak = summary["rss_peak_bytes"];
  EXPECT_GT(base, 0);
  EXPECT_LT(base, 4'000'000);
  EXPECT_LE(peak - base, arena + 1'000'000);
  // And the arena is really used: a plan far above the truth would be no
  // promise either.
  EXPECT_GE(peak - base, arena * 9 / 10);
}

TEST(Memory, PeakRssOverBaseIsTheArenaAndAtMostAMegabyte) {
  DropFromPageCache(THIMBLE_CLI);
  for (const char* model : {"mlp", "cnn"}) {
    for (const char* batch : {"32", "256"}) {
      CheckMemory(model, "synthetic", batch);
    }
  }
  CheckMemory("wrn-28-2", "synthetic-cifar", "20");
}

}  // namespace
}  // namespace thimble
