// SPDX-License-Identifier: Apache-2.0
//
// How many CPUs this process may use. Safe from every thread.
#pragma once

#include <string>

namespace thimble {

// The number of CPUs that the scheduler may put this process on (taskset,
// cpusets). It is fewer where the process's cgroup, or a parent of it, has a
// quota of CPU time: `docker run --cpus 1.5` gives 2. At least 1. `root` stands
// in for / in tests.
int UsableCpus(const std::string& root = "");

}  // namespace thimble
