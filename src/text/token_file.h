// SPDX-License-Identifier: Apache-2.0
//
// X.tokens, the file of one split: a header of 128 bytes, then the records
// (thimble/text_data.h). The header has the magic THTK, a version, how many
// pairs and tokens there are, the longest sentences, the sizes of the
// vocabularies and the SHA-256 of the records.
//
// A TokenFileWriter belongs to one thread; a TokenFile does not change, and its
// methods are safe from every thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/sha256.h"
#include "thimble/status.h"
#include "thimble/text_data.h"

namespace thimble::text {

inline constexpr uint64_t kTokenHeaderBytes = 128;
// Tokens are stored as u16.
inline constexpr int64_t kMostTokens = 65'536;
// Tokens of a sentence, its end included.
inline constexpr int64_t kLongestSentence = 65'535;

// By side: [0] of the source, [1] of the target.
struct TokenHeader {
  uint64_t pairs = 0;
  std::array<uint64_t, kTextSides> tokens = {};
  std::array<uint32_t, kTextSides> longest = {};
  std::array<uint32_t, kTextSides> vocabulary = {};
  Sha256Digest sha256 = {};  // of the records

  // What the records take.
  uint64_t body_bytes() const {
    return pairs * TextRecord::kHeadBytes + 2 * (tokens[0] + tokens[1]);
  }
  friend bool operator==(const TokenHeader&, const TokenHeader&) = default;
};

class TokenFileWriter {
 public:
  // The vocabularies are of at most kMostTokens.
  static Result<TokenFileWriter> Create(
      const std::string& path, const std::array<uint32_t, kTextSides>& sizes);

  // REQUIRES: 1 to kLongestSentence tokens per side, all of the vocabulary,
  // the last one kEndToken and no other.
  Status Add(uint32_t line, std::span<const uint16_t> source,
             std::span<const uint16_t> target);
  // The file stands under its name from here on; before, it does not. REQUIRES:
  // called at most once, and last.
  Result<TokenHeader> Commit();

 private:
  TokenFileWriter(AtomicFileWriter file,
                  const std::array<uint32_t, kTextSides>& sizes);
  Status Flush();

  AtomicFileWriter file_;
  TokenHeader header_;
  Sha256 sha_;
  std::vector<std::byte> pending_;
};

class TokenFile {
 public:
  // Checks the header, and the file's size by it.
  static Result<TokenFile> Open(const std::string& path);

  const TokenHeader& header() const { return header_; }
  const std::string& path() const { return file_.path(); }
  // From byte `offset` of the records on.
  Status Read(uint64_t offset, std::span<std::byte> buffer) const {
    return ReadFullyAt(file_, buffer, kTokenHeaderBytes + offset);
  }
  // Reads all records. Whether they are what the header says, with tokens of
  // the vocabulary and ends where they must be; in order of their lengths, if
  // `sorted`.
  Status Check(bool sorted) const;

 private:
  TokenFile(FileDescriptor file, const TokenHeader& header)
      : file_(std::move(file)), header_(header) {}

  FileDescriptor file_;
  TokenHeader header_;
};

}  // namespace thimble::text
