// SPDX-License-Identifier: Apache-2.0
//
// WordCounts: how often each word occurs, in a bounded number of bytes. Once
// there are too many words, the rarest are forgotten: the first time those that
// occurred once, the second time up to twice, and so on. Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace thimble::text {

class WordCounts {
 public:
  // `bytes` are for words and for what learning codes from them takes.
  explicit WordCounts(size_t bytes) : most_(bytes) {}

  void Add(std::string_view word, uint64_t count = 1) {
    const auto [at, is_new] = counts_.try_emplace(std::string(word), 0);
    at->second += count;
    if (!is_new) return;
    bytes_ += BytesOf(word);
    while (bytes_ > most_ && !counts_.empty()) Forget();
  }

  const std::unordered_map<std::string, uint64_t>& counts() const {
    return counts_;
  }
  // Words that were forgotten, those that came again each time.
  uint64_t forgotten() const { return forgotten_; }

 private:
  static size_t BytesOf(std::string_view word) {
    return 100 + 24 * word.size();
  }
  // The words of the least count; of one more each time, so that what came in
  // since does not crowd out what comes.
  void Forget() {
    ++least_;
    for (auto at = counts_.begin(); at != counts_.end();) {
      if (at->second > least_) {
        ++at;
        continue;
      }
      bytes_ -= BytesOf(at->first);
      ++forgotten_;
      at = counts_.erase(at);
    }
  }

  size_t most_;
  size_t bytes_ = 0;
  uint64_t least_ = 0;
  uint64_t forgotten_ = 0;
  std::unordered_map<std::string, uint64_t> counts_;
};

}  // namespace thimble::text
