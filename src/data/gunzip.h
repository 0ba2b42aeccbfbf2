// SPDX-License-Identifier: Apache-2.0
//
// Unpacks a gzip file in small pieces: about 200 KB of memory whatever the
// size, all of it freed on return. Any thread; no shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "thimble/status.h"

namespace thimble {

// More than any dataset here; stops a small file from filling the disk.
inline constexpr uint64_t kMaxUnpackedBytes = uint64_t{4} << 30;

// Takes the next piece of what was unpacked; an error ends the unpacking.
using PieceSink = std::function<Status(std::span<const std::byte> piece)>;

// Gives all of `source` to `sink`, piece by piece. What was given can be
// trusted when this returns Ok, not before: the checksum comes last.
// `done` is told how many bytes of `source` have been read, if it is set.
Status Gunzip(const std::string& source, const PieceSink& sink,
              const std::function<void(uint64_t)>& done = {},
              uint64_t max_bytes = kMaxUnpackedBytes);

// `target` appears only when all of `source` was unpacked and its checksums
// agree; on any error no file is left behind.
Status GunzipFile(const std::string& source, const std::string& target,
                  uint64_t max_bytes = kMaxUnpackedBytes);

}  // namespace thimble
