// SPDX-License-Identifier: Apache-2.0
#include "thimble/cpus.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <limits>

#include "base/cgroup.h"

namespace thimble {
namespace {

int AllowedCpus() {
  // The kernel refuses a set that is smaller than its own.
  for (int capacity = CPU_SETSIZE; capacity <= 1 << 20; capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(capacity);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    const int cpus = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (known) return cpus;
    if (errno != EINVAL) break;
  }
  return 1;
}

// The CPUs that `quota` of each `period` is, rounded up. "max" and negative
// numbers are no quota.
int CpusOf(const char* quota, const char* period) {
  const int64_t time = std::strtoll(quota, nullptr, 10);
  const int64_t each = std::strtoll(period, nullptr, 10);
  if (time <= 0 || each <= 0) return std::numeric_limits<int>::max();
  const int64_t cpus = time / each + (time % each > 0 ? 1 : 0);
  return static_cast<int>(
      std::min<int64_t>(cpus, std::numeric_limits<int>::max()));
}

int QuotaOf(const std::string& folder) {
  // Version 2: "150000 100000".
  const std::string both = ReadSystemFile(folder + "/cpu.max");
  const size_t blank = both.find(' ');
  if (blank != both.npos) return CpusOf(both.c_str(), both.c_str() + blank);
  return CpusOf(ReadSystemFile(folder + "/cpu.cfs_quota_us").c_str(),
                ReadSystemFile(folder + "/cpu.cfs_period_us").c_str());
}

}  // namespace

int UsableCpus(const std::string& root) {
  int cpus = AllowedCpus();
  for (const std::string& folder : OwnCgroups("cpu", root)) {
    cpus = std::min(cpus, QuotaOf(folder));
  }
  return std::max(cpus, 1);
}

}  // namespace thimble
