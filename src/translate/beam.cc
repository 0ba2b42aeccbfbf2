// SPDX-License-Identifier: Apache-2.0
#include "translate/beam.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace thimble::translate {

BeamSearch::BeamSearch(const BeamOptions& options)
    : options_(options), most_(static_cast<size_t>(2 * options.beam)) {
  TH_CHECK(options.beam >= 1 && options.max_length >= 1);
  TH_CHECK(options.end_word <= options.vocabulary);
  const auto beam = static_cast<size_t>(options.beam);
  const auto tokens = beam * static_cast<size_t>(options.max_length);
  candidates_.reserve(most_ + 1);
  for (size_t i = 0; i < 2; ++i) {
    tokens_[i].resize(tokens);
    sums_[i].resize(beam);
  }
  kept_.resize(tokens);
  found_.reserve(beam);
}

size_t BeamSearch::BytesOf(const BeamOptions& options) {
  const auto beam = static_cast<size_t>(options.beam);
  const auto tokens = beam * static_cast<size_t>(options.max_length);
  return 3 * tokens * sizeof(int32_t) + 2 * beam * sizeof(double) +
         beam * sizeof(Found) + (2 * beam + 1) * sizeof(Candidate);
}

void BeamSearch::Begin() {
  found_.clear();
  now_ = 0;
  count_ = 1;
  length_ = 0;
  sums_[0][0] = 0;
  is_done_ = false;
}

bool BeamSearch::IsBetter(const Candidate& a, const Candidate& b) {
  if (a.sum != b.sum) return a.sum > b.sum;
  if (a.hypothesis != b.hypothesis) return a.hypothesis < b.hypothesis;
  return a.token < b.token;
}

void BeamSearch::Offer(const Candidate& candidate) {
  if (candidates_.size() == most_) {
    if (!IsBetter(candidate, candidates_.back())) return;
    candidates_.pop_back();
  }
  candidates_.insert(std::ranges::upper_bound(candidates_, candidate, IsBetter),
                     candidate);
}

bool BeamSearch::Consider(int64_t h, std::span<const float> row) {
  float largest = -std::numeric_limits<float>::infinity();
  for (float logit : row) largest = std::max(largest, logit);
  double sum = 0;
  for (float logit : row) sum += std::exp(logit - largest);
  // Also where the largest is infinite.
  if (!std::isfinite(sum)) return false;
  const double before = sums_[now_][static_cast<size_t>(h)];
  // Of a token, less its logit.
  const double rest = before - std::log(sum) - static_cast<double>(largest);
  const auto offer = [&](int32_t token) {
    Offer({rest + static_cast<double>(row[static_cast<size_t>(token)]), h,
           token});
  };
  offer(options_.end);
  if (length_ == options_.max_length) return true;
  for (int32_t token = options_.first_word; token < options_.end_word;
       ++token) {
    offer(token);
  }
  return true;
}

void BeamSearch::Keep(const Candidate& candidate) {
  if (found_.size() == static_cast<size_t>(options_.beam)) return;
  const size_t at = found_.size() * static_cast<size_t>(options_.max_length);
  std::ranges::copy(Hypothesis(candidate.hypothesis),
                    kept_.begin() + static_cast<ptrdiff_t>(at));
  const double length =
      std::pow(static_cast<double>(length_ + 1), options_.length_penalty);
  found_.push_back(
      {.score = candidate.sum / length, .length = length_, .at = at});
}

void BeamSearch::GoOn(const Candidate& candidate) {
  if (next_count_ == options_.beam) return;
  const size_t next = 1 - now_;
  int32_t* to =
      &tokens_[next][static_cast<size_t>(next_count_ * options_.max_length)];
  *std::ranges::copy(Hypothesis(candidate.hypothesis), to).out =
      candidate.token;
  sums_[next][static_cast<size_t>(next_count_++)] = candidate.sum;
}

bool BeamSearch::Advance(std::span<const float> logits) {
  TH_CHECK(!is_done_);
  candidates_.clear();
  const auto classes = static_cast<size_t>(options_.vocabulary);
  for (int64_t h = 0; h < count_; ++h) {
    if (!Consider(h,
                  logits.subspan(static_cast<size_t>(h) * classes, classes))) {
      is_done_ = true;
      return false;
    }
  }
  next_count_ = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& candidate = candidates_[i];
    if (candidate.token != options_.end) {
      GoOn(candidate);
    } else if (i < static_cast<size_t>(options_.beam)) {
      Keep(candidate);
    }
  }
  now_ = 1 - now_;
  count_ = next_count_;
  ++length_;
  is_done_ = found_.size() == static_cast<size_t>(options_.beam) || count_ == 0;
  if (is_done_) {
    std::ranges::sort(found_, [](const Found& a, const Found& b) {
      return a.score != b.score ? a.score > b.score : a.at < b.at;
    });
  }
  return true;
}

}  // namespace thimble::translate
