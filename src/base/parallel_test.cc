// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

namespace thimble {
namespace {

TEST(ThreadPool, RefusesImpossibleThreadCounts) {
  EXPECT_EQ(ThreadPool::Create(0).status().code(), StatusCode::kUsage);
  EXPECT_EQ(ThreadPool::Create(257).status().code(), StatusCode::kUsage);
}

TEST(ThreadPool, CoversEveryIndexOnceForAnyThreadCount) {
  for (int threads = 1; threads <= 5; ++threads) {
    auto pool = ThreadPool::Create(threads);
    ASSERT_TRUE(pool.ok());
    for (int64_t n : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<int> hits(static_cast<size_t>(n), 0);
      (*pool)->ParallelFor(n, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
      });
      EXPECT_EQ(std::count(hits.begin(), hits.end(), 1), n);
    }
  }
}

TEST(ThreadPool, GivesSharesInIndexOrder) {
  auto pool = ThreadPool::Create(3);
  ASSERT_TRUE(pool.ok());
  std::vector<std::pair<int64_t, int64_t>> shares(3);
  (*pool)->ParallelFor(10, [&](int64_t begin, int64_t end, int thread) {
    shares[static_cast<size_t>(thread)] = {begin, end};
  });
  EXPECT_EQ(shares[0], std::make_pair(int64_t{0}, int64_t{3}));
  EXPECT_EQ(shares[1], std::make_pair(int64_t{3}, int64_t{6}));
  EXPECT_EQ(shares[2], std::make_pair(int64_t{6}, int64_t{10}));
}

TEST(ThreadPool, PublishesWhatEachJobWroteToTheNext) {
  auto pool = ThreadPool::Create(4);
  ASSERT_TRUE(pool.ok());
  // Each job reads what other threads wrote in the job before: a race here is
  // what the ThreadSanitizer build would report.
  std::vector<int64_t> current(64, 1);
  std::vector<int64_t> next(64, 0);
  for (int job = 0; job < 300; ++job) {
    (*pool)->ParallelFor(64, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        next[static_cast<size_t>(i)] = current[static_cast<size_t>(63 - i)] + 1;
      }
    });
    std::swap(current, next);
  }
  EXPECT_EQ(std::count(current.begin(), current.end(), 301), 64);
}

TEST(ThreadPool, EndsCleanlyWhileIdle) {
  for (int round = 0; round < 50; ++round) {
    auto pool = ThreadPool::Create(3);
    ASSERT_TRUE(pool.ok());
    std::atomic<int64_t> sum{0};
    (*pool)->ParallelFor(9, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) sum += i;
    });
    EXPECT_EQ(sum.load(), 36);
  }
}

// In a child process, so that the tests after this one keep their CPUs.
TEST(ThreadPool, DoesNotSpinWithMoreThreadsThanCpusThatItMayUse) {
  const int child = fork();
  if (child == 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(sched_getcpu(), &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) _exit(100);
    auto one = ThreadPool::Create(1);
    auto two = ThreadPool::Create(2);
    if (!one.ok() || !two.ok()) _exit(101);
    _exit(((*one)->spins() ? 1 : 0) + ((*two)->spins() ? 2 : 0));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);  // of the two, the pool of one thread
}

}  // namespace
}  // namespace thimble
