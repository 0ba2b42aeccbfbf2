// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

#include <limits.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "thimble/cpus.h"

namespace thimble {
namespace {

// Kernels keep their tiles in planned workspace, so a thread needs little more
// than its call chain. Sanitizers and deep register spills want some slack.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kStackBytes = 1 << 20;
#else
constexpr size_t kStackBytes = 128 << 10;
#endif

// Ops of a step follow each other within microseconds; a short spin saves the
// futex round trip between them, the sleep keeps an idle pool off the CPU.
// With more threads than CPUs, whoever spins takes the time of one that works.
constexpr int kSpins = 4000;

int SpinsFor(int threads) { return threads <= UsableCpus() ? kSpins : 0; }

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits until `value` differs from `old`.
template <typename T>
void WaitWhileEqual(const std::atomic<T>& value, T old, int spins) {
  for (int spin = 0; spin < spins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

struct ThreadPool::Worker {
  pthread_t handle;
  ThreadPool* pool;
  int number;
  bool started = false;
};

ThreadPool::ThreadPool(int threads)
    : threads_(threads),
      spins_(SpinsFor(threads)),
      workers_(std::make_unique<Worker[]>(static_cast<size_t>(threads))) {}

Result<std::unique_ptr<ThreadPool>> ThreadPool::Create(int threads) {
  if (threads < 1 || threads > kMaxThreads) {
    return Status::Usage("threads must be between 1 and 256");
  }
  std::unique_ptr<ThreadPool> pool(new ThreadPool(threads));
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(
      &attributes,
      std::max(kStackBytes, static_cast<size_t>(PTHREAD_STACK_MIN)));
  int error = 0;
  for (int t = 1; t < threads && error == 0; ++t) {
    Worker& worker = pool->workers_[static_cast<size_t>(t)];
    worker.pool = pool.get();
    worker.number = t;
    error = pthread_create(
        &worker.handle, &attributes,
        [](void* argument) -> void* {
          auto* self = static_cast<Worker*>(argument);
          self->pool->WorkerLoop(self->number);
          return nullptr;
        },
        &worker);
    worker.started = error == 0;
  }
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    return Status::Failed(std::string("cannot start a thread: ") +
                          std::strerror(error) +
                          "; try fewer PlanOptions::threads");
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (int t = 1; t < threads_; ++t) {
    Worker& worker = workers_[static_cast<size_t>(t)];
    if (worker.started) pthread_join(worker.handle, nullptr);
  }
}

void ThreadPool::RunShare(int thread, int64_t n, const Body& body) const {
  const int64_t begin = n * thread / threads_;
  const int64_t end = n * (thread + 1) / threads_;
  if (begin < end) body(begin, end, thread);
}

void ThreadPool::ParallelFor(int64_t n, Body body) {
  if (n <= 0) return;
  if (threads_ == 1 || n == 1) {
    // The range is one share: [0, n) of a single thread, or the one index that
    // the static split would give to some thread; either way thread 0 runs it.
    body(0, n, 0);
    return;
  }
  body_ = &body;
  n_ = n;
  pending_.store(threads_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  RunShare(0, n, body);
  for (int left = pending_.load(std::memory_order_acquire); left != 0;
       left = pending_.load(std::memory_order_acquire)) {
    WaitWhileEqual(pending_, left, spins_);
  }
}

void ThreadPool::WorkerLoop(int thread) {
  uint32_t seen = 0;
  while (true) {
    WaitWhileEqual(generation_, seen, spins_);
    ++seen;
    if (stop_.load(std::memory_order_relaxed)) return;
    RunShare(thread, n_, *body_);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      pending_.notify_one();
    }
  }
}

}  // namespace thimble
