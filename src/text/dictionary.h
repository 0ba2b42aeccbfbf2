// SPDX-License-Identifier: Apache-2.0
//
// How dictionaries are made and written. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "thimble/text_data.h"

namespace thimble::text {

// As many words as numbers of 16 bits leave.
inline constexpr int64_t kMostWords = 65'536 - kFirstWord;

using CountedWord = std::pair<std::string, uint64_t>;

// What a vocabulary of so many words holds in all.
constexpr int64_t VocabularyOf(int64_t words) {
  return (words + kFirstWord + 7) / 8 * 8;
}

// In the order of a dictionary: by falling count, equals by their bytes. Of too
// many words the most frequent.
void SortWords(std::vector<CountedWord>* words);
std::string DictionaryText(const std::vector<CountedWord>& words);

}  // namespace thimble::text
