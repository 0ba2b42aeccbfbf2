// SPDX-License-Identifier: Apache-2.0
#include "text/bleu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include "base/check.h"
#include "base/files.h"

namespace thimble::text {
namespace {

// As split without arguments has it in Perl, of bytes.
constexpr std::string_view kBlanks = " \t\n\r\f\v";

void SplitWords(std::string_view text, std::vector<std::string_view>* words) {
  size_t at = text.find_first_not_of(kBlanks);
  while (at != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
    words->push_back(text.substr(at, end - at));
    at = text.find_first_not_of(kBlanks, end);
  }
}

// The order of n-grams that begin at two places.
int Compare(std::span<const uint32_t> a, size_t i, std::span<const uint32_t> b,
            size_t j, size_t n) {
  for (size_t k = 0; k < n; ++k) {
    if (a[i + k] != b[j + k]) return a[i + k] < b[j + k] ? -1 : 1;
  }
  return 0;
}

void SortGrams(std::span<const uint32_t> words, size_t n,
               std::vector<uint32_t>* grams) {
  grams->clear();
  for (uint32_t i = 0; i + n <= words.size(); ++i) grams->push_back(i);
  std::ranges::sort(*grams, [&](uint32_t a, uint32_t b) {
    return Compare(words, a, words, b, n) < 0;
  });
}

// The lines of a file, one after the other.
class BleuLines {
 public:
  static Result<BleuLines> Open(const std::string& path) {
    TH_ASSIGN_OR_RETURN(FileDescriptor file, OpenForReading(path));
    return BleuLines(std::move(file));
  }

  const std::string& path() const { return file_.path(); }
  // False at the end. A last line without an end is one.
  Result<bool> Next(std::string* line) {
    line->clear();
    bool any = false;
    for (;;) {
      if (begin_ == end_) {
        TH_ASSIGN_OR_RETURN(end_, ReadSomeAt(file_, *buffer_, offset_));
        begin_ = 0;
        offset_ += end_;
        if (end_ == 0) return any;
      }
      const auto* text = reinterpret_cast<const char*>(buffer_->data());
      const std::string_view left(text + begin_, end_ - begin_);
      const size_t length = left.find('\n');
      line->append(left.substr(0, length));
      any = true;
      if (length != std::string_view::npos) {
        begin_ += length + 1;
        return true;
      }
      begin_ = end_;
    }
  }

 private:
  using Buffer = std::array<std::byte, size_t{64} << 10>;

  explicit BleuLines(FileDescriptor file)
      : file_(std::move(file)), buffer_(std::make_unique<Buffer>()) {}

  FileDescriptor file_;
  std::unique_ptr<Buffer> buffer_;
  size_t begin_ = 0, end_ = 0;  // of what is left in the buffer
  uint64_t offset_ = 0;
};

}  // namespace

std::string Bleu::Text() const {
  const double ratio = reference_words == 0
                           ? 0
                           : static_cast<double>(hypothesis_words) /
                                 static_cast<double>(reference_words);
  return fmt::format(
      "BLEU = {:.2f}, {:.1f}/{:.1f}/{:.1f}/{:.1f} (BP={:.3f}, ratio={:.3f}, "
      "hyp_len={}, ref_len={})",
      bleu, precisions[0], precisions[1], precisions[2], precisions[3],
      brevity_penalty, ratio, hypothesis_words, reference_words);
}

void BleuCounts::Number(std::string_view hypothesis,
                        std::string_view reference) {
  words_.clear();
  SplitWords(hypothesis, &words_);
  const size_t in_hypothesis = words_.size();
  SplitWords(reference, &words_);
  known_ = words_;
  std::ranges::sort(known_);
  known_.erase(std::unique(known_.begin(), known_.end()), known_.end());
  hypothesis_.clear();
  reference_.clear();
  for (size_t i = 0; i < words_.size(); ++i) {
    const auto at = std::ranges::lower_bound(known_, words_[i]);
    (i < in_hypothesis ? hypothesis_ : reference_)
        .push_back(static_cast<uint32_t>(at - known_.begin()));
  }
}

void BleuCounts::Add(std::string_view hypothesis, std::string_view reference) {
  Number(hypothesis, reference);
  ++sentences_;
  hypothesis_words_ += static_cast<int64_t>(hypothesis_.size());
  reference_words_ += static_cast<int64_t>(reference_.size());
  for (size_t n = 1; n <= kBleuOrders; ++n) {
    SortGrams(hypothesis_, n, &hypothesis_grams_);
    SortGrams(reference_, n, &reference_grams_);
    made_[n - 1] += static_cast<int64_t>(hypothesis_grams_.size());
    // Each n-gram of the reference is taken by one equal of the hypothesis.
    size_t i = 0, j = 0;
    while (i < hypothesis_grams_.size() && j < reference_grams_.size()) {
      const int order = Compare(hypothesis_, hypothesis_grams_[i], reference_,
                                reference_grams_[j], n);
      if (order == 0) ++matches_[n - 1];
      i += order <= 0 ? 1 : 0;
      j += order >= 0 ? 1 : 0;
    }
  }
}

Bleu BleuCounts::Score() const {
  Bleu score{.sentences = sentences_,
             .hypothesis_words = hypothesis_words_,
             .reference_words = reference_words_};
  double logs = 0;
  bool any_is_zero = false;
  for (size_t n = 0; n < kBleuOrders; ++n) {
    if (matches_[n] == 0) {
      any_is_zero = true;
      continue;
    }
    const double share =
        static_cast<double>(matches_[n]) / static_cast<double>(made_[n]);
    score.precisions[n] = 100 * share;
    logs += std::log(share);
  }
  if (hypothesis_words_ == 0) {
    score.brevity_penalty = reference_words_ == 0 ? 1 : 0;
  } else if (hypothesis_words_ < reference_words_) {
    score.brevity_penalty =
        std::exp(1 - static_cast<double>(reference_words_) /
                         static_cast<double>(hypothesis_words_));
  }
  if (any_is_zero) return score;
  score.bleu = 100 * score.brevity_penalty * std::exp(logs / kBleuOrders);
  return score;
}

Result<Bleu> BleuOfFiles(const std::string& hypotheses,
                         const std::string& references) {
  TH_ASSIGN_OR_RETURN(BleuLines made, BleuLines::Open(hypotheses));
  TH_ASSIGN_OR_RETURN(BleuLines right, BleuLines::Open(references));
  BleuCounts counts;
  std::string hypothesis, reference;
  for (int64_t lines = 0;; ++lines) {
    TH_ASSIGN_OR_RETURN(const bool has_hypothesis, made.Next(&hypothesis));
    TH_ASSIGN_OR_RETURN(const bool has_reference, right.Next(&reference));
    if (!has_hypothesis && !has_reference) break;
    if (has_hypothesis != has_reference) {
      return Status::Failed(fmt::format(
          "{} has {} lines, {} has more; BLEU needs one reference for each "
          "hypothesis",
          has_hypothesis ? right.path() : made.path(), lines,
          has_hypothesis ? made.path() : right.path()));
    }
    counts.Add(hypothesis, reference);
  }
  return counts.Score();
}

}  // namespace thimble::text
