// SPDX-License-Identifier: Apache-2.0
//
// ThreadPool: a fixed set of threads with small explicit stacks, made once.
// ParallelFor splits an index range statically and in order: thread t of T gets
// [n*t/T, n*(t+1)/T). Nothing is allocated after construction. Whoever writes
// each output element in one place and one order gets the same bits for any T.
//
// One thread at a time may call ParallelFor (the executor); calls do not nest.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/function_ref.h"
#include "thimble/status.h"

namespace thimble {

class ThreadPool {
 public:
  // Called with a half-open range of indices and the thread's number.
  using Body = FunctionRef<void(int64_t begin, int64_t end, int thread)>;

  static constexpr int kMaxThreads = 256;

  // The calling thread is thread 0; threads-1 more are started.
  static Result<std::unique_ptr<ThreadPool>> Create(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  // Whether a waiting thread spins before it sleeps: not where there are more
  // threads than CPUs that the process may use (thimble/cpus.h).
  bool spins() const { return spins_ > 0; }

  // Runs body over [0, n), and returns when all of it is done. Threads whose
  // share is empty are not called.
  void ParallelFor(int64_t n, Body body);

 private:
  struct Worker;

  explicit ThreadPool(int threads);
  void RunShare(int thread, int64_t n, const Body& body) const;
  void WorkerLoop(int thread);

  int threads_;
  int spins_;  // before a waiting thread sleeps
  std::unique_ptr<Worker[]> workers_;
  // Rises by one for each job.
  std::atomic<uint32_t> generation_{0};
  std::atomic<int> pending_{0};
  std::atomic<bool> stop_{false};
  const Body* body_ = nullptr;
  int64_t n_ = 0;
};

}  // namespace thimble
