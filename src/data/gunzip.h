// SPDX-License-Identifier: Apache-2.0
//
// Unpacks a gzip file to another file in small pieces: about 200 KB of memory
// whatever the size, all of it freed on return. Any thread; no shared state.
#pragma once

#include <cstdint>
#include <string>

#include "thimble/status.h"

namespace thimble {

// More than any dataset here; stops a small file from filling the disk.
inline constexpr uint64_t kMaxUnpackedBytes = uint64_t{4} << 30;

// `target` appears only when all of `source` was unpacked and its checksums
// agree; on any error no file is left behind.
Status GunzipFile(const std::string& source, const std::string& target,
                  uint64_t max_bytes = kMaxUnpackedBytes);

}  // namespace thimble
