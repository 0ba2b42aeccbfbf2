// SPDX-License-Identifier: Apache-2.0
//
// What the system lets this process take of memory: told before it is taken,
// because a limit of a cgroup ends the process without a word, and only when
// the memory is touched. Safe from every thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "thimble/status.h"

namespace thimble {

struct MemoryLimit {
  std::string what;    // "`ulimit -v`"
  uint64_t bytes = 0;  // most that it allows
  uint64_t taken = 0;  // of them, by this process now
  std::string note;    // what else there is to know; may be empty
};

// Those that are set: `ulimit -v` and `-d`, the cgroup's and its parents', the
// machine's memory. Swap that may be used counts as memory. `root` stands in
// for / in tests.
std::vector<MemoryLimit> MemoryLimits(const std::string& root = "");

// Whether a process that takes `bytes` more, of which `arena` are the arena,
// stays within all limits; else names the first that it would pass.
Status CheckMemoryLimits(uint64_t arena, uint64_t bytes,
                         std::span<const MemoryLimit> limits);

}  // namespace thimble
