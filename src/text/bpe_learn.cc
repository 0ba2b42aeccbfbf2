// SPDX-License-Identifier: Apache-2.0
//
// Learning codes: counts of pairs are kept up to date, and for each pair the
// words that it may be in, so that a merge looks at those alone.
#include <algorithm>
#include <queue>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "text/bpe.h"

namespace thimble::text {
namespace {

class Learner {
 public:
  explicit Learner(const WordCounts& words) : best_(Order{&symbols_}) {
    // Nothing depends on their order.
    for (const auto& [word, count] : words.counts()) Add(word, count);
    for (const auto& [key, pair] : pairs_) best_.push({pair.count, key});
  }

  // The next code is made and carried out; false where none is left.
  bool Next(PairCode* code) {
    while (!best_.empty()) {
      const Candidate candidate = best_.top();
      best_.pop();
      const auto found = pairs_.find(candidate.key);
      const int64_t now = found == pairs_.end() ? 0 : found->second.count;
      if (now != candidate.count) {
        // It has become rarer since it was put there.
        if (now > 0 && now < candidate.count) best_.push({now, candidate.key});
        continue;
      }
      if (now < kLeastCount) return false;
      *code = {symbols_[Left(candidate.key)], symbols_[Right(candidate.key)]};
      Carry(candidate.key, *code);
      return true;
    }
    return false;
  }

 private:
  // A pair that occurs once says nothing.
  static constexpr int64_t kLeastCount = 2;

  struct Word {
    size_t begin;  // in text_
    uint32_t length;
    int64_t count;
  };
  struct Pair {
    int64_t count = 0;
    std::vector<uint32_t> words;  // those it is in, and some it was in
  };
  struct Candidate {
    int64_t count;
    uint64_t key;
  };
  struct Order {
    const std::vector<std::string>* symbols;
    bool operator()(const Candidate& a, const Candidate& b) const {
      if (a.count != b.count) return a.count < b.count;
      if (a.key == b.key) return false;
      const int left = (*symbols)[Left(a.key)].compare((*symbols)[Left(b.key)]);
      if (left != 0) return left < 0;
      return (*symbols)[Right(a.key)] < (*symbols)[Right(b.key)];
    }
  };

  static uint64_t Key(uint32_t left, uint32_t right) {
    return (uint64_t{left} << 32) | right;
  }
  static uint32_t Left(uint64_t key) {
    return static_cast<uint32_t>(key >> 32);
  }
  static uint32_t Right(uint64_t key) { return static_cast<uint32_t>(key); }

  uint32_t SymbolOf(const std::string& text) {
    const auto [at, is_new] =
        ids_.try_emplace(text, static_cast<uint32_t>(symbols_.size()));
    if (is_new) symbols_.push_back(text);
    return at->second;
  }

  void Add(const std::string& word, uint64_t count) {
    const auto index = static_cast<uint32_t>(words_.size());
    const size_t begin = text_.size();
    for (size_t at = 0; at < word.size();) {
      const size_t bytes = Utf8Bytes(std::string_view(word).substr(at));
      TH_CHECK(bytes > 0);
      std::string character = word.substr(at, bytes);
      at += bytes;
      if (at == word.size()) character += kWordEnd;
      text_.push_back(SymbolOf(character));
    }
    words_.push_back({begin, static_cast<uint32_t>(text_.size() - begin),
                      static_cast<int64_t>(count)});
    for (size_t i = begin; i + 1 < text_.size(); ++i) {
      Note(Key(text_[i], text_[i + 1]), index);
    }
  }

  // The pair is once more in the word.
  void Note(uint64_t key, uint32_t word) {
    Pair& pair = pairs_[key];
    pair.count += words_[word].count;
    if (pair.words.empty() || pair.words.back() != word) {
      pair.words.push_back(word);
    }
  }

  void Carry(uint64_t key, const PairCode& code) {
    const uint32_t made = SymbolOf(code.left + code.right);
    std::vector<uint32_t> words = std::move(pairs_[key].words);
    std::ranges::sort(words);
    words.erase(std::unique(words.begin(), words.end()), words.end());
    more_.clear();
    for (const uint32_t word : words) MergeIn(word, key, made);
    std::ranges::sort(more_);
    more_.erase(std::unique(more_.begin(), more_.end()), more_.end());
    for (const uint64_t pair : more_) {
      const auto found = pairs_.find(pair);
      if (found != pairs_.end()) best_.push({found->second.count, pair});
    }
  }

  void MergeIn(uint32_t index, uint64_t key, uint32_t made) {
    Word& word = words_[index];
    uint32_t* const text = &text_[word.begin];
    old_.assign(text, text + word.length);
    uint32_t length = 0;
    for (uint32_t i = 0; i < word.length; ++i, ++length) {
      const bool meets =
          i + 1 < word.length && Key(old_[i], old_[i + 1]) == key;
      text[length] = meets ? made : old_[i];
      if (meets) ++i;
    }
    if (length == word.length) return;  // it had been in it
    word.length = length;
    // Added first, so that a pair that stays is never forgotten between.
    for (uint32_t i = 0; i + 1 < length; ++i) {
      const uint64_t pair = Key(text[i], text[i + 1]);
      if (text[i] == made || text[i + 1] == made) {
        Note(pair, index);
        more_.push_back(pair);
      } else {
        pairs_[pair].count += word.count;
      }
    }
    for (size_t i = 0; i + 1 < old_.size(); ++i) {
      const auto found = pairs_.find(Key(old_[i], old_[i + 1]));
      found->second.count -= word.count;
      if (found->second.count == 0) pairs_.erase(found);
    }
  }

  std::vector<std::string> symbols_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::vector<uint32_t> text_;  // symbols of all words
  std::vector<Word> words_;
  std::unordered_map<uint64_t, Pair> pairs_;
  // May name counts that a pair had before.
  std::priority_queue<Candidate, std::vector<Candidate>, Order> best_;
  std::vector<uint32_t> old_;
  std::vector<uint64_t> more_;  // pairs that have become more frequent
};

}  // namespace

Result<PairCodes> LearnCodes(
    const WordCounts& words, int64_t merges,
    const std::function<Status(int64_t done)>& progress) {
  constexpr int64_t kBetween = 64;
  Learner learner(words);
  PairCodes codes;
  PairCode code;
  while (std::ssize(codes) < merges && learner.Next(&code)) {
    codes.push_back(code);
    if (std::ssize(codes) % kBetween == 0) {
      TH_RETURN_IF_ERROR(progress(std::ssize(codes)));
    }
  }
  return codes;
}

}  // namespace thimble::text
