// SPDX-License-Identifier: Apache-2.0
//
// For tests only: IDX, CIFAR-10, tar and gzip files made in memory, a small
// generator to damage them with, and a limit on the size of files. One thread.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/rng.h"
#include "base/test_folder.h"

namespace thimble {

inline void AppendBigEndian(uint32_t value, std::string* out) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    *out += static_cast<char>(value >> shift & 0xff);
  }
}

// Pixel i of all images is i % 251.
inline std::string IdxImages(uint32_t count, uint32_t height, uint32_t width) {
  std::string bytes;
  for (uint32_t word : {0x00000803u, count, height, width}) {
    AppendBigEndian(word, &bytes);
  }
  for (uint32_t i = 0; i < count * height * width; ++i) {
    bytes += static_cast<char>(i % 251);
  }
  return bytes;
}

// Label i is (i + first) % 10.
inline std::string IdxLabels(uint32_t count, uint32_t first = 0) {
  std::string bytes;
  AppendBigEndian(0x00000801, &bytes);
  AppendBigEndian(count, &bytes);
  for (uint32_t i = 0; i < count; ++i) {
    bytes += static_cast<char>((i + first) % 10);
  }
  return bytes;
}

inline std::string Gzip(std::string_view bytes) {
  z_stream state{};
  EXPECT_EQ(deflateInit2(&state, 6, Z_DEFLATED, 16 + MAX_WBITS, 8,
                         Z_DEFAULT_STRATEGY),
            Z_OK);
  std::string out(deflateBound(&state, bytes.size()) + 32, '\0');
  state.next_in =
      reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));  // zlib's API
  state.avail_in = static_cast<uInt>(bytes.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&state, Z_FINISH), Z_STREAM_END);
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

// Records of CIFAR-10's binary version. Record i has label (i + first) % 10,
// and pixel j of it is (7 * (i + first) + j) % 253.
inline std::string Cifar10Records(uint32_t count, uint32_t first = 0) {
  std::string bytes;
  for (uint32_t i = first; i < count + first; ++i) {
    bytes += static_cast<char>(i % 10);
    for (uint32_t j = 0; j < 3072; ++j) {
      bytes += static_cast<char>((7 * i + j) % 253);
    }
  }
  return bytes;
}

// The archive with its first header's checksum made right.
inline std::string WithTarChecksum(std::string archive) {
  archive.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (size_t i = 0; i < 512; ++i) sum += static_cast<uint8_t>(archive[i]);
  char digits[8];
  std::snprintf(digits, sizeof(digits), "%06o", sum);
  return archive.replace(148, 7, std::string_view(digits, 7));
}

// One member of a tar archive, as GNU tar writes it.
inline std::string TarMember(std::string_view name, std::string_view bytes,
                             char type = '0') {
  std::string member(512, '\0');
  member.replace(0, name.size(), name);
  char size[16];
  std::snprintf(size, sizeof(size), "%011zo", bytes.size());
  member.replace(124, 11, size);
  member[156] = type;
  member.replace(257, 7, "ustar  ");
  member = WithTarChecksum(member);
  member += bytes;
  member.resize((member.size() + 511) / 512 * 512);
  return member;
}

inline std::string TarEnd() { return std::string(1024, '\0'); }

// Damage number `round`: flips bytes among the first `span`, cuts the end off,
// or adds to it. The same for the same round.
inline std::string Mutate(std::string bytes, uint64_t round, size_t span) {
  const RandomStream random(/*seed=*/2024, round, /*stream=*/0);
  const PhiloxBlock choice = random.Block(0);
  if (choice[0] % 4 == 0) bytes.resize(choice[1] % (bytes.size() + 1));
  if (choice[0] % 4 == 1) bytes.append(1 + choice[1] % 40, 'x');
  const uint32_t flips = choice[0] % 4 < 2 ? choice[2] % 2 : 1 + choice[2] % 4;
  for (uint32_t i = 0; i < flips && !bytes.empty(); ++i) {
    const PhiloxBlock flip = random.Block(1 + i);
    const size_t at = flip[0] % std::min(span, bytes.size());
    bytes[at] = static_cast<char>(flip[1] % 3 == 0   ? 0xff
                                  : flip[1] % 3 == 1 ? 0
                                                     : flip[2] & 0xff);
  }
  return bytes;
}

// While it lives, no file grows past `bytes`, as under `ulimit -f`; writing
// more is an error, EFBIG, and not the signal that ends a process. Programs
// started meanwhile inherit both.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(uint64_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit{std::min<rlim_t>(bytes, before_.rlim_max),
                       before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0);
    signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_;
};

}  // namespace thimble
