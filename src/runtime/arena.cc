// SPDX-License-Identifier: Apache-2.0
#include "runtime/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "thimble/size.h"

namespace thimble::runtime {

Result<Arena> Arena::Map(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t mapped = (bytes + page - 1) / page * page;
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    return Status::Failed(fmt::format(
        "the system refuses an arena of {}: {}; a smaller Model::batch or "
        "fewer PlanOptions::threads take less",
        FormatBytesUp(bytes), std::strerror(errno)));
  }
  return Arena(static_cast<std::byte*>(base), mapped);
}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, mapped_);
}

}  // namespace thimble::runtime
