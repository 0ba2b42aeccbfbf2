// SPDX-License-Identifier: Apache-2.0
//
// Byte-pair codes (Sennrich et al., "Neural Machine Translation of Rare Words
// with Subword Units", ACL 2016), in the file format of subword-nmt, version
// 0.2. A word is a row of characters, the last one marked by </w>. A code says
// which two neighbours become one symbol; earlier codes come first. What a word
// ends up as are its pieces.
//
// Example: with the codes "l o", "lo w</w>" the word "low" is one piece, and
// "lows" is "lo", "w", "s".
//
// Functions are pure. A Segmenter belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/word_counts.h"
#include "thimble/status.h"

namespace thimble::text {

inline constexpr std::string_view kWordEnd = "</w>";
// Behind a piece that is not its word's last one.
inline constexpr std::string_view kGoesOn = "@@";

struct PairCode {
  std::string left, right;
  friend bool operator==(const PairCode&, const PairCode&) = default;
};
using PairCodes = std::vector<PairCode>;  // earlier ones come first

// `name` is the file's, for messages.
Result<PairCodes> ParseCodes(const std::string& name, std::string_view text);
Result<PairCodes> ReadCodes(const std::string& path);
std::string CodesText(const PairCodes& codes);

// Up to `merges` codes, fewer where no pair is left that occurs twice. Each is
// the most frequent pair of neighbours in all words, ties go to the greatest by
// bytes. Takes some 100 bytes per word and 24 per character at its peak.
// `progress` is told how many there are, now and then, and ends it by an error.
Result<PairCodes> LearnCodes(
    const WordCounts& words, int64_t merges,
    const std::function<Status(int64_t done)>& progress);

class Segmenter {
 public:
  // Keeps the pieces of words that it was asked for, in up to `cache_bytes`.
  explicit Segmenter(const PairCodes& codes,
                     size_t cache_bytes = size_t{8} << 20);

  // Where each piece of `word` ends, in bytes; until the next call. REQUIRES:
  // the word is UTF-8, and not empty.
  std::span<const uint32_t> Split(std::string_view word);

 private:
  // What becomes of two neighbours.
  struct Merge {
    uint32_t rank;
    uint32_t symbol;
  };
  // A piece on its way.
  struct Node {
    uint32_t symbol;
    uint32_t end;  // in the word
    uint32_t previous, next;
    bool is_alive;
  };
  using Waiting = std::pair<uint32_t, uint32_t>;  // rank, node

  uint32_t SymbolOf(const std::string& text) const;
  const Merge* MergeAt(uint32_t node) const;
  void Begin(std::string_view word);
  void Wait(uint32_t node);
  // Carries out the codes of one rank.
  void Round();

  std::unordered_map<std::string, uint32_t> symbols_;
  std::unordered_map<uint64_t, Merge> merges_;
  const size_t cache_bytes_;
  size_t cached_bytes_ = 0;
  std::unordered_map<std::string, std::vector<uint32_t>> cache_;
  // Of the word at hand.
  std::vector<Node> nodes_;
  std::vector<Waiting> waiting_;  // a heap, the lowest on top
  std::vector<uint32_t> merged_;
  std::vector<uint32_t> ends_;
};

// Calls `each` with the pieces of a word as text, which is put into `piece`.
template <typename Each>
void ForEachPiece(Segmenter& segmenter, std::string_view word,
                  std::string* piece, const Each& each) {
  uint32_t begin = 0;
  for (const uint32_t end : segmenter.Split(word)) {
    *piece = word.substr(begin, end - begin);
    if (end < word.size()) *piece += kGoesOn;
    each(*piece);
    begin = end;
  }
}

}  // namespace thimble::text
