// SPDX-License-Identifier: Apache-2.0
//
// Streaming SHA-256 (FIPS 180-4): for the digest of trained weights and for
// names of cached files. Portable scalar code of some 200 MB/s, which is enough
// for files of megabytes.
//
// A Sha256 belongs to one thread; nothing is allocated by Update or Final.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace thimble {

using Sha256Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();

  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view text) {
    Update(std::as_bytes(std::span(text.data(), text.size())));
  }
  // The digest of all that was given. REQUIRES: called once, and last.
  Sha256Digest Final();

 private:
  void Compress(const uint8_t* block);

  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> buffer_;
  uint64_t length_ = 0;
};

// 64 lower-case hexadecimal digits.
std::string Hex(const Sha256Digest& digest);

}  // namespace thimble
