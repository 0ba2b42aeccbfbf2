// SPDX-License-Identifier: Apache-2.0
#include "thimble/rss.h"

#include <fcntl.h>
#include <unistd.h>

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

void ReturnFreeHeap() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

}  // namespace thimble
