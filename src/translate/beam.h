// SPDX-License-Identifier: Apache-2.0
//
// BeamSearch: the translations of one sentence, a token at a time. It keeps the
// `beam` best beginnings, its hypotheses, and is told the logits of the token
// behind each of them. Of all ways to go on, by the sum of log-probabilities,
// it looks at the best 2 · beam: those that end the sentence are translations
// if they are among the first `beam`, the others are the next hypotheses, at
// most `beam`. It is done when it has `beam` translations, or when hypotheses
// are as long as they may be, which then must end. With a beam of 1 this takes
// the most probable token each time.
//
// What is equal is taken in the order of hypotheses, then of tokens. One thread
// at a time; allocates nothing behind its constructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace thimble::translate {

struct BeamOptions {
  int64_t beam = 4;
  // Translations are compared by the sum of log-probabilities over their length
  // to this power, the end counted.
  double length_penalty = 1.0;
  int64_t max_length = 200;  // tokens of a translation, the end not counted
  int64_t vocabulary = 1;    // logits of a row
  // Tokens that may be taken: the end, and [first_word, end_word).
  int32_t end = 2;
  int32_t first_word = 3;
  int32_t end_word = 1;  // at most the vocabulary
};

class BeamSearch {
 public:
  // A translation, without the end.
  struct Found {
    double score = 0;  // what translations are compared by
    int64_t length = 0;
    size_t at = 0;  // where its tokens are kept
  };

  explicit BeamSearch(const BeamOptions& options);
  // What a search allocates.
  static size_t BytesOf(const BeamOptions& options);

  // Begins a sentence: one hypothesis, without tokens.
  void Begin();
  // Of the next logits; 0 when it is done.
  int64_t hypotheses() const { return is_done_ ? 0 : count_; }
  // Of each hypothesis.
  int64_t length() const { return length_; }
  std::span<const int32_t> Hypothesis(int64_t i) const {
    return {&tokens_[now_][static_cast<size_t>(i * options_.max_length)],
            static_cast<size_t>(length_)};
  }
  // Rows of `logits` for each hypothesis. False where they are no numbers: the
  // search is then over. REQUIRES: it is not done.
  bool Advance(std::span<const float> logits);
  bool is_done() const { return is_done_; }

  // The best first, once it is done. At least one.
  std::span<const Found> found() const { return found_; }
  std::span<const int32_t> TokensOf(const Found& found) const {
    return {&kept_[found.at], static_cast<size_t>(found.length)};
  }

 private:
  struct Candidate {
    double sum;
    int64_t hypothesis;
    int32_t token;
  };

  static bool IsBetter(const Candidate& a, const Candidate& b);
  // Ways to go on from hypothesis h, among the best so far.
  bool Consider(int64_t h, std::span<const float> row);
  void Offer(const Candidate& candidate);
  void Keep(const Candidate& candidate);  // as a translation
  void GoOn(const Candidate& candidate);

  BeamOptions options_;
  size_t most_;                        // candidates
  std::vector<Candidate> candidates_;  // the best first
  // Of the hypotheses, and of the next ones: tokens, max_length for each, and
  // the sum of their log-probabilities.
  std::vector<int32_t> tokens_[2];
  std::vector<double> sums_[2];
  std::vector<int32_t> kept_;
  std::vector<Found> found_;
  size_t now_ = 0;
  int64_t count_ = 0, next_count_ = 0, length_ = 0;
  bool is_done_ = true;
};

}  // namespace thimble::translate
