// SPDX-License-Identifier: Apache-2.0
//
// Fields of files such as /proc/self/status. Pure, safe from every thread.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace thimble {

// The value of a "Key:   1234 kB" line, in bytes; 0 where there is none.
// Allocates nothing.
inline uint64_t ProcFieldBytes(const char* text, const char* key) {
  const char* line = std::strstr(text, key);
  if (line == nullptr) return 0;
  return 1024 * std::strtoull(line + std::strlen(key), nullptr, 10);
}

}  // namespace thimble
