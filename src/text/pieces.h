// SPDX-License-Identifier: Apache-2.0
//
// Pieces of words of one side of a text, before there is a dictionary. Belongs
// to one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/dictionary.h"

namespace thimble::text {

// They are numbered as they come.
class Pieces {
 public:
  uint32_t NumberOf(const std::string& piece) {
    const auto [at, is_new] =
        numbers_.try_emplace(piece, static_cast<uint32_t>(counts_.size()));
    if (is_new) counts_.push_back(0);
    return at->second;
  }
  void Count(std::span<const uint32_t> pieces) {
    for (const uint32_t piece : pieces) ++counts_[piece];
  }
  // Those that occur, in the order of a dictionary.
  std::vector<CountedWord> Counted() const {
    std::vector<CountedWord> words;
    for (const auto& [piece, number] : numbers_) {
      if (counts_[number] > 0) words.emplace_back(piece, counts_[number]);
    }
    return words;
  }
  // The dictionary's number for each of these.
  std::vector<uint16_t> Translated(const Dictionary& dictionary) const {
    std::vector<uint16_t> to(counts_.size());
    for (const auto& [piece, number] : numbers_) {
      to[number] = static_cast<uint16_t>(dictionary.Find(piece));
    }
    return to;
  }

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
  std::vector<uint64_t> counts_;
};

}  // namespace thimble::text
