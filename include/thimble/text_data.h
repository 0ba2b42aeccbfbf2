// SPDX-License-Identifier: Apache-2.0
//
// TextData: pairs of sentences in two languages as numbers, in a folder that
// `thimble data prepare` has written (docs/reference/files.md). Sentences are
// not held in memory. They are read when they are asked for, straight into
// memory of the caller.
//
// A TextData does not change after Open. All its methods are safe from every
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "thimble/status.h"

namespace thimble {

enum class TextSide { kSource, kTarget };
inline constexpr size_t kTextSides = 2;

enum class TextSplit { kTrain, kValid, kTest };
inline constexpr size_t kTextSplits = 3;

// "train", "valid", "test"
const char* TextSplitName(TextSplit split);

// Tokens that are no words; those have the numbers from kFirstWord on.
inline constexpr int32_t kPadToken = 1;
inline constexpr int32_t kEndToken = 2;  // ends each sentence
inline constexpr int32_t kUnknownToken = 3;
inline constexpr int32_t kFirstWord = 4;

// A sentence's tokens in the records of a split, and how records begin: with
// this head, little endian, behind which come the source's tokens and then the
// target's, as u16. Both sides end in kEndToken and hold it nowhere else.
struct TextRecord {
  uint16_t source = 0;  // tokens
  uint16_t target = 0;
  uint32_t line = 0;  // of the text that was prepared, from 0

  static constexpr uint64_t kHeadBytes = 8;
  // REQUIRES: there are kHeadBytes.
  static TextRecord At(std::span<const std::byte> bytes);
  uint64_t bytes() const {
    return kHeadBytes + 2 * (uint64_t{source} + uint64_t{target});
  }
};

class TextData {
 public:
  // Reads all files of the folder once: lengths, tokens and digests must be
  // right. The training split must be there.
  static Result<std::unique_ptr<TextData>> Open(const std::string& dir);
  ~TextData();
  TextData(const TextData&) = delete;
  TextData& operator=(const TextData&) = delete;

  // The folder, as given to Open.
  const std::string& name() const;
  // Tokens that there are, special ones and padding of the vocabulary included.
  int64_t vocabulary(TextSide side) const;

  bool has(TextSplit split) const;
  // Of a split that is missing, 0.
  int64_t pairs(TextSplit split) const;
  int64_t tokens(TextSplit split, TextSide side) const;
  int64_t longest(TextSplit split, TextSide side) const;  // sentence, in tokens

  // What there is to Read of a split: its records without a gap. Those of the
  // training split are sorted by the source's length, then by the target's; the
  // others are in the order of the text.
  uint64_t bytes(TextSplit split) const;
  // Fills `buffer` from byte `offset` of the records on. Allocates nothing when
  // it succeeds. REQUIRES: the split is there, and has so many bytes.
  Status Read(TextSplit split, uint64_t offset,
              std::span<std::byte> buffer) const;

  // 16 hexadecimal digits by which a resumed run knows its data again: a digest
  // of all records of all splits, and of the vocabularies' sizes.
  const std::string& fingerprint() const;

 private:
  struct Impl;
  explicit TextData(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace thimble
