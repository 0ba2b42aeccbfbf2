// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>

namespace thimble::bench {

// Seconds from an arbitrary start. With `cpu` those that the calling thread
// ran: what one thread does takes the same time on a busy machine.
inline double Now(bool cpu) {
  timespec time{};
  clock_gettime(cpu ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace thimble::bench
