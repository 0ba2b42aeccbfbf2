// SPDX-License-Identifier: Apache-2.0
#include "base/memory_limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "base/test_system.h"

namespace thimble {
namespace {

constexpr char kSecondVersion[] =
    "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
constexpr char kFirstVersion[] =
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

// A process of 10 MB on a machine of 4 GB.
class MadeMachine : public MadeSystem {
 public:
  MadeMachine(std::string_view cgroup, std::string_view mountinfo,
              const char* swap = "0")
      : MadeSystem(cgroup, mountinfo) {
    Write("/proc/self/status",
          "VmSize:\t   30000 kB\nVmRSS:\t   10000 kB\nVmData:\t   20000 kB\n");
    Write("/proc/meminfo",
          std::string("MemTotal:  4000000 kB\nSwapTotal: ") + swap + " kB\n");
  }
  // What is said of an arena of so many bytes, with 1 MB beside it.
  std::string Check(uint64_t arena) const {
    return CheckMemoryLimits(arena, arena + 1'000'000, MemoryLimits(root()))
        .message();
  }
};

TEST(MemoryLimits, TheMachinesMemoryIsALimit) {
  const MadeMachine machine("", "");
  const uint64_t most = 4'000'000 * 1024ull - 10'000 * 1024 - 1'000'000;
  EXPECT_EQ(machine.Check(most), "");
  EXPECT_NE(machine.Check(most + 1).find("this machine's memory"),
            std::string::npos);
  EXPECT_EQ(MadeMachine("", "", "8").Check(most + 8 * 1024), "");
  // Nothing is known: nothing is refused.
  EXPECT_TRUE(CheckMemoryLimits(1, 2, MemoryLimits("/nowhere")).ok());
}

TEST(MemoryLimits, TheCgroupsLimitIsNamedWithItsFigures) {
  MadeMachine machine("0::/a/b\n", kSecondVersion);
  machine.Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(machine.Check(300'000'000), "");
  machine.Write("/sys/fs/cgroup/a/memory.max", "200000000\n");
  machine.Write("/sys/fs/cgroup/a/memory.current", "12000000\n");
  EXPECT_EQ(machine.Check(200'000'000 - 10'000 * 1024 - 1'000'000), "");
  EXPECT_EQ(
      machine.Check(300'000'000),
      "an arena of 300.00 MB cannot be had: with the 11.24 MB that the process "
      "takes besides, it is more than the 200.00 MB of the cgroup's " +
          machine.root() +
          "/sys/fs/cgroup/a/memory.max, where 12.00 MB are in use by all of "
          "its processes and their files; raise that limit, or take less with "
          "a smaller PlanOptions::budget, Model::batch or "
          "PlanOptions::microbatch");
}

// As plans say it.
TEST(MemoryLimits, TheArenaIsRoundedUp) {
  const std::vector<MemoryLimit> limits = {{"this machine", 1'000, 0, ""}};
  const Status status = CheckMemoryLimits(206'771'001, 206'771'001, limits);
  EXPECT_EQ(status.message().find("an arena of 206.78 MB cannot be had"), 0u)
      << status.message();
}

TEST(MemoryLimits, SwapThatTheCgroupMayUseCountsAsMemory) {
  MadeMachine machine("0::/a\n", kSecondVersion, "100000");
  machine.Write("/sys/fs/cgroup/a/memory.max", "200000000\n");
  EXPECT_EQ(machine.Check(250'000'000), "");
  machine.Write("/sys/fs/cgroup/a/memory.swap.max", "max\n");
  EXPECT_EQ(machine.Check(250'000'000), "");
  machine.Write("/sys/fs/cgroup/a/memory.swap.max", "0\n");
  EXPECT_NE(machine.Check(250'000'000), "");
}

TEST(MemoryLimits, TheLimitOfTheFirstVersionCounts) {
  MadeMachine machine("4:memory:/a\n", kFirstVersion, "100000");
  const std::string folder = "/sys/fs/cgroup/memory/a/";
  machine.Write(folder + "memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(machine.Check(300'000'000), "");
  machine.Write(folder + "memory.limit_in_bytes", "200000000\n");
  EXPECT_EQ(machine.Check(250'000'000), "");
  machine.Write(folder + "memory.memsw.limit_in_bytes", "200000000\n");
  EXPECT_NE(machine.Check(250'000'000).find("a/memory.limit_in_bytes"),
            std::string::npos);
}

TEST(MemoryLimits, ResourceLimitsCountWhatTheProcessHasMapped) {
  const MadeMachine machine("", "");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
  // So high that it does not matter for this process, a sanitizer's included.
  const uint64_t high = 1ull << 60;
  const rlimit limit{.rlim_cur = high, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
  const uint64_t most = high - 20'000 * 1024 - 1'000'000;
  EXPECT_EQ(machine.Check(most).find("ulimit"), std::string::npos);
  EXPECT_NE(machine.Check(most + 1).find("of `ulimit -d`"), std::string::npos);
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &before), 0);
}

}  // namespace
}  // namespace thimble
