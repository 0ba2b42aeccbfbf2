// SPDX-License-Identifier: Apache-2.0
#include "thimble/cpus.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/cgroup.h"
#include "base/test_system.h"

namespace thimble {
namespace {

constexpr char kMounts[] =
    "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
    "33 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup "
    "rw,cpu,cpuacct\n"
    "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "35 31 0:32 /jobs/7 /my\\040groups/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

using Paths = std::vector<std::string>;

TEST(Cgroup, FoldersAreTheOwnOneAndItsParentsInBothVersions) {
  EXPECT_EQ(
      FindCgroups("4:cpuset:/\n3:cpu,cpuacct:/a/b\n0::/c\n", kMounts, "cpu"),
      (Paths{"/sys/fs/cgroup/cpu,cpuacct/a/b", "/sys/fs/cgroup/cpu,cpuacct/a",
             "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/unified/c",
             "/sys/fs/cgroup/unified"}));
  EXPECT_EQ(FindCgroups("0::/\n", kMounts, "cpu"),
            (Paths{"/sys/fs/cgroup/unified"}));
}

TEST(Cgroup, WhatIsMountedMayBeginBelowTheTopOfTheHierarchy) {
  EXPECT_EQ(FindCgroups("5:memory:/jobs/7/mine\n", kMounts, "memory"),
            (Paths{"/my groups/memory/mine", "/my groups/memory"}));
  // Not seen from here: /jobs/77 is no part of /jobs/7.
  for (const char* path : {"/jobs/77", "/elsewhere", "/../x", "/"}) {
    EXPECT_EQ(
        FindCgroups(std::string("5:memory:") + path + "\n", kMounts, "memory"),
        (Paths{"/my groups/memory"}))
        << path;
  }
}

TEST(Cgroup, NothingIsFoundInTextsThatAreEmptyOrStrange) {
  EXPECT_EQ(FindCgroups("", kMounts, "cpu"), Paths());
  EXPECT_EQ(FindCgroups("0::/a\n", "", "cpu"), Paths());
  EXPECT_EQ(FindCgroups("0\n:\nx:y\n", kMounts, "cpu"), Paths());
  EXPECT_EQ(FindCgroups("0::/a\n", "- cgroup2\n1 2 3 4 5 6 -\n", "cpu"),
            Paths());
}

int AffinityCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  return CPU_COUNT(&set);
}

TEST(Cpus, AQuotaIsRoundedUpToWholeCpus) {
  MadeSystem system("0::/a/b\n",
                    "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  const int all = AffinityCpus();
  EXPECT_EQ(UsableCpus(system.root()), all);
  system.Write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(UsableCpus(system.root()), all);
  system.Write("/sys/fs/cgroup/a/b/cpu.max", "100000 100000\n");
  EXPECT_EQ(UsableCpus(system.root()), 1);
  system.Write("/sys/fs/cgroup/a/b/cpu.max", "1000 100000\n");
  EXPECT_EQ(UsableCpus(system.root()), 1);
  system.Write("/sys/fs/cgroup/a/b/cpu.max", "100001 100000\n");
  EXPECT_EQ(UsableCpus(system.root()), std::min(all, 2));
  // A quota above the CPUs that there are changes nothing.
  system.Write("/sys/fs/cgroup/a/b/cpu.max", "900000000 100000\n");
  EXPECT_EQ(UsableCpus(system.root()), all);
}

TEST(Cpus, TheQuotaOfAParentCounts) {
  MadeSystem system("0::/a/b\n",
                    "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  system.Write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  system.Write("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  EXPECT_EQ(UsableCpus(system.root()), 1);
}

TEST(Cpus, TheQuotaOfTheFirstVersionCounts) {
  MadeSystem system("2:cpu:/a\n0::/\n", kMounts);
  const std::string folder = "/sys/fs/cgroup/cpu,cpuacct/a/";
  system.Write(folder + "cpu.cfs_period_us", "100000\n");
  system.Write(folder + "cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(UsableCpus(system.root()), AffinityCpus());
  system.Write(folder + "cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(UsableCpus(system.root()), 1);
}

// In a child process, so that the tests after this one keep their CPUs.
TEST(Cpus, FollowsTheCpusThatTheProcessMayRunOn) {
  const int child = fork();
  if (child == 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(sched_getcpu(), &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) _exit(100);
    _exit(UsableCpus());
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_LE(UsableCpus(), AffinityCpus());
}

}  // namespace
}  // namespace thimble
