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
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// The words and pieces of words of one side, by number, and what prepared the
// text. Immutable; safe from every thread.
class Dictionary {
 public:
  // A file of lines "token count", of which the first one is kFirstWord.
  static Result<Dictionary> Read(const std::string& path);

  // Tokens that there are: words, those below kFirstWord, and as many that
  // never occur as make it a multiple of 8.
  int64_t size() const;
  int64_t words() const { return std::ssize(begins_) - 1; }
  // Of a token that is no word, a name in angle brackets. REQUIRES: 0 <= token
  // < size().
  std::string_view Text(int32_t token) const;
  // kUnknownToken where it is none of the words.
  int32_t Find(std::string_view word) const;
  // A sentence: pieces are put together to words, with spaces between. Ends and
  // padding are left out.
  std::string Join(std::span<const int32_t> tokens) const;

 private:
  Status Parse(const std::string& name, std::string_view text);
  std::string_view WordAt(size_t i) const;

  std::string text_;               // all words
  std::vector<uint32_t> begins_;   // in it, and its end
  std::vector<uint32_t> ordered_;  // words in the order of their bytes
};

// Makes tokens of lines of words as the data were made. Belongs to one thread.
class SentenceEncoder {
 public:
  // By the codes and the dictionary of a prepared folder.
  static Result<std::unique_ptr<SentenceEncoder>> Open(const std::string& dir,
                                                       TextSide side);
  ~SentenceEncoder();
  SentenceEncoder(const SentenceEncoder&) = delete;
  SentenceEncoder& operator=(const SentenceEncoder&) = delete;

  const Dictionary& dictionary() const;
  // Appends the tokens of `line`, kEndToken last; returns how many of them are
  // unknown. REQUIRES: the line is UTF-8.
  int64_t Encode(std::string_view line, std::vector<int32_t>* tokens);

 private:
  struct Impl;
  explicit SentenceEncoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class TextData {
 public:
  // Reads all files of the folder once: lengths, tokens and digests must be
  // right, and dictionaries of the size that the tokens are for. The training
  // split must be there.
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
  // The same of what gives tokens their meaning: codes and dictionaries.
  const std::string& meaning() const;

 private:
  struct Impl;
  explicit TextData(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace thimble
