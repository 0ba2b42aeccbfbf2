// SPDX-License-Identifier: Apache-2.0
#include "thimble/rss.h"

#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "base/function_ref.h"
#include "base/proc_field.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace thimble {
namespace {

// The value of a "Key:   1234 kB" line of /proc/self/status, in bytes.
int64_t StatusField(const char* key) {
  const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[4096];
  const ssize_t got = read(fd, text, sizeof(text) - 1);
  close(fd);
  if (got <= 0) return 0;
  text[got] = '\0';
  return static_cast<int64_t>(ProcFieldBytes(text, key));
}

struct Pages {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

void Advise(const Pages& pages, int advice) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  madvise(reinterpret_cast<void*>(pages.begin), pages.end - pages.begin,
          advice);
}

// Calls `use` for each piece of the program itself that is in memory as it is
// in its file: code and constants.
void ForEachReadOnly(FunctionRef<void(const Pages&)> use) {
  const auto visit = [](dl_phdr_info* program, size_t, void* data) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    for (int i = 0; i < program->dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = program->dlpi_phdr[i];
      if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) continue;
      const uintptr_t first = program->dlpi_addr + segment.p_vaddr;
      const uintptr_t end = first + segment.p_memsz;
      (*static_cast<FunctionRef<void(const Pages&)>*>(data))(
          {first / page * page, (end + page - 1) / page * page});
    }
    return 1;  // the program comes first; libraries are shared with others
  };
  dl_iterate_phdr(visit, &use);
}

}  // namespace

int64_t CurrentRssBytes() { return StatusField("VmRSS:"); }

int64_t PeakRssBytes() { return StatusField("VmHWM:"); }

bool ResetPeakRss() {
  const int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool done = write(fd, "5", 1) == 1;
  close(fd);
  return done;
}

void ReturnFreeStack() {
#if defined(__GLIBC__)
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  void* lowest = nullptr;
  size_t bytes = 0;
  const int error = pthread_attr_getstack(&attributes, &lowest, &bytes);
  pthread_attr_destroy(&attributes);
  if (error != 0) return;
  constexpr uintptr_t kCalls = 16 << 10;  // from here on
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(lowest);
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  const uintptr_t end = (here - kCalls) / page * page;
  // Where it has never grown to, there is nothing, which is no harm.
  if (begin < end) Advise({begin, end}, MADV_DONTNEED);
#endif
}

void MapCodeInPieces() {
  constexpr uintptr_t kPiece = 16 << 10;
  ForEachReadOnly([](const Pages& pages) {
    // Neighbours that differ in a flag stay apart. This one says nothing of
    // pages of files, which no core dump has but for the first.
    for (uintptr_t at = pages.begin + kPiece; at < pages.end;
         at += 2 * kPiece) {
      Advise({at, std::min(at + kPiece, pages.end)}, MADV_DONTDUMP);
    }
  });
}

void ReturnCode() {
  if (StatusField("TracerPid:") != 0) return;
  ForEachReadOnly([](const Pages& pages) { Advise(pages, MADV_DONTNEED); });
}

void ReturnFreeHeap() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

}  // namespace thimble
