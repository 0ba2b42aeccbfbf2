// SPDX-License-Identifier: Apache-2.0
//
// Unpacks a gzip file in small pieces: about 200 KB of memory whatever the
// size, all of it freed on return. How much comes out is bounded. Any thread;
// no shared state.
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

// What the beginning of an unpacked file says of the whole.
struct UnpackedHeader {
  size_t bytes;
  // The length of the whole file, or what is wrong with the header. Is given
  // less than `bytes` where the file has no more.
  std::function<Result<uint64_t>(std::span<const std::byte>)> length;
};

// Unpacks a file of just the length that its header promises. Nothing is
// written before the header has come, is right, and the file system has room
// for what it promises. `target` appears only when all of `source` was unpacked
// and its checksums agree; on any error no file is left behind. Removes what
// dead processes have left of `target`.
Status GunzipFile(const std::string& source, const std::string& target,
                  const UnpackedHeader& header);

}  // namespace thimble
