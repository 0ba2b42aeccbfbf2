// SPDX-License-Identifier: Apache-2.0
#include "base/memory_limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "base/cgroup.h"
#include "base/proc_field.h"
#include "thimble/size.h"

namespace thimble {
namespace {

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

uint64_t AddUpTo(uint64_t a, uint64_t b) {
  return a > kMost - b ? kMost : a + b;
}

// A file of one number; none where there is no file, or it says "max".
std::optional<uint64_t> ReadNumber(const std::string& path) {
  const std::string text = ReadSystemFile(path);
  uint64_t number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

void AddResourceLimit(int resource, const char* what, uint64_t taken,
                      std::vector<MemoryLimit>* limits) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return;
  if (limit.rlim_cur == RLIM_INFINITY) return;
  limits->push_back({what, limit.rlim_cur, taken, ""});
}

// `swap` is the machine's. Version 2 counts memory and swap apart, version 1
// together.
void AddCgroupLimit(const std::string& folder, uint64_t swap, uint64_t taken,
                    std::vector<MemoryLimit>* limits) {
  std::string file = folder + "/memory.max";
  std::optional<uint64_t> most = ReadNumber(file);
  std::optional<uint64_t> used = ReadNumber(folder + "/memory.current");
  std::optional<uint64_t> with_swap;
  if (most.has_value()) {
    const auto own_swap = ReadNumber(folder + "/memory.swap.max");
    with_swap = AddUpTo(*most, std::min(own_swap.value_or(kMost), swap));
  } else {
    file = folder + "/memory.limit_in_bytes";
    most = ReadNumber(file);
    if (!most.has_value()) return;
    used = ReadNumber(folder + "/memory.usage_in_bytes");
    const auto both = ReadNumber(folder + "/memory.memsw.limit_in_bytes");
    with_swap = std::min(AddUpTo(*most, swap), both.value_or(kMost));
  }
  limits->push_back({"the cgroup's " + file, std::max(*most, *with_swap), taken,
                     used.has_value()
                         ? fmt::format(", where {} are in use by all of its "
                                       "processes and their files",
                                       FormatBytes(*used))
                         : ""});
}

}  // namespace

std::vector<MemoryLimit> MemoryLimits(const std::string& root) {
  const std::string status = ReadSystemFile(root + "/proc/self/status");
  const std::string machine = ReadSystemFile(root + "/proc/meminfo");
  const uint64_t resident = ProcFieldBytes(status.c_str(), "VmRSS:");
  const uint64_t swap = ProcFieldBytes(machine.c_str(), "SwapTotal:");
  const uint64_t memory = ProcFieldBytes(machine.c_str(), "MemTotal:");
  std::vector<MemoryLimit> limits;
  AddResourceLimit(RLIMIT_AS, "`ulimit -v`",
                   ProcFieldBytes(status.c_str(), "VmSize:"), &limits);
  AddResourceLimit(RLIMIT_DATA, "`ulimit -d`",
                   ProcFieldBytes(status.c_str(), "VmData:"), &limits);
  for (const std::string& folder : OwnCgroups("memory", root)) {
    AddCgroupLimit(folder, swap, resident, &limits);
  }
  if (memory > 0) {
    limits.push_back(
        {"this machine's memory and swap", memory + swap, resident, ""});
  }
  return limits;
}

Status CheckMemoryLimits(uint64_t arena, uint64_t bytes,
                         std::span<const MemoryLimit> limits) {
  for (const MemoryLimit& limit : limits) {
    if (AddUpTo(bytes, limit.taken) <= limit.bytes) continue;
    return Status::Failed(fmt::format(
        "an arena of {} cannot be had: with the {} that the process takes "
        "besides, it is more than the {} of {}{}; raise that limit, or take "
        "less with a smaller PlanOptions::budget, Model::batch or "
        "PlanOptions::microbatch",
        FormatBytesUp(arena), FormatBytes(bytes - arena + limit.taken),
        FormatBytes(limit.bytes), limit.what, limit.note));
  }
  return Status::Ok();
}

}  // namespace thimble
