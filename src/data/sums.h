// SPDX-License-Identifier: Apache-2.0
//
// The SHA-256 sums by which CIFAR-10 is known, and files compared with them.
// Functions are safe from every thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "data/cifar10.h"
#include "thimble/status.h"

namespace thimble {

inline constexpr char kCifar10Archive[] = "cifar-10-binary.tar.gz";

struct Cifar10Sums {
  // In the order of kCifar10Names, 64 hexadecimal digits each.
  std::array<std::string, kCifar10Files> files;
  std::string archive;         // empty: any archive of these files
  uint64_t archive_bytes = 0;  // 0: not known
  uint64_t file_bytes = 0;     // of each of the six; 0: not known
};

// Of the published files.
Cifar10Sums PublishedCifar10Sums();

// From a file as sha256sum writes it. All six files must be in it, the archive
// may be; lines of other files are passed over.
Result<Cifar10Sums> ReadCifar10Sums(const std::string& path);

// Told how many bytes have been dealt with.
using ByteCount = std::function<void(uint64_t bytes)>;

Result<std::string> Sha256OfFile(const std::string& path,
                                 const ByteCount& done);

// Says what differs, and nothing when nothing does.
Status CompareSum(const std::string& what, const std::string& found,
                  const std::string& published);

}  // namespace thimble
