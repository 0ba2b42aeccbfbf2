// SPDX-License-Identifier: Apache-2.0
//
// TarParser: the regular files of a tar archive (ustar, and what GNU tar writes
// for short names), from a stream of pieces of any size. It keeps one block of
// 512 bytes, believes no header whose checksum is wrong, and touches no file: a
// name is only passed on, and what to do with it is the visitor's business.
//
// Belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "thimble/status.h"

namespace thimble {

class TarVisitor {
 public:
  virtual ~TarVisitor() = default;
  // A regular file begins. `name` is the archive's: any path, from anybody.
  virtual Status Begin(std::string_view name, uint64_t bytes) = 0;
  // Its next bytes; `bytes` of them in all.
  virtual Status Data(std::span<const std::byte> piece) = 0;
  virtual Status End() = 0;
};

class TarParser {
 public:
  // Errors name `source`. The visitor must outlive the parser; its errors end
  // the parsing.
  TarParser(std::string source, TarVisitor* visitor)
      : source_(std::move(source)), visitor_(visitor) {}

  Status Feed(std::span<const std::byte> piece);
  // After the last piece: an error if the archive ends within a file.
  Status Finish() const;

 private:
  static constexpr size_t kBlock = 512;

  Status TakeHeader();
  Status Damaged(const char* why) const;

  std::string source_;
  TarVisitor* visitor_;
  std::array<std::byte, kBlock> header_;
  size_t filled_ = 0;      // of header_
  uint64_t data_ = 0;      // bytes of the current member still to come
  uint64_t padding_ = 0;   // after them, up to a whole block
  bool visiting_ = false;  // the current member is a regular file
  bool ended_ = false;     // the block of zeros was seen
};

}  // namespace thimble
