// SPDX-License-Identifier: Apache-2.0
#include "translate/decoder.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace thimble::translate {
namespace {

// Tokens of a usual sentence: those of the corpora of the papers have 25.
constexpr int64_t kUsualTokens = 32;

ValueId OutputOf(const Plan& plan, std::string_view name) {
  const auto& outputs = plan.evaluate_ends().outputs;
  const auto found = std::ranges::find(outputs, name, &End::name);
  TH_CHECK(found != outputs.end());
  return found->value;
}

TranslatorRoom RoomOf(const Plan& plan) {
  const auto axes = plan.graph().axes();
  TH_CHECK(axes.size() == 4);
  return {.sentences = axes[2].capacity,
          .source_tokens = axes[3].capacity,
          .hypotheses = axes[1].capacity,
          .target_tokens = axes[0].capacity};
}

}  // namespace

TranslatorRoom RoomFor(const BeamOptions& beam, int64_t sentences,
                       int64_t longest_source) {
  const int64_t hypotheses = sentences * beam.beam;
  return {.sentences = sentences,
          .source_tokens = std::max(sentences * kUsualTokens, longest_source),
          .hypotheses = hypotheses,
          .target_tokens = std::max(hypotheses * kUsualTokens,
                                    beam.beam * (beam.max_length + 1))};
}

Decoder::Decoder(Session& session, const BeamOptions& options)
    : session_(session),
      options_(options),
      room_(RoomOf(session.plan())),
      read_(OutputOf(session.plan(), "read")),
      logits_(OutputOf(session.plan(), "logits")) {
  TH_CHECK(room_.hypotheses >= room_.sentences * options.beam);
  TH_CHECK(room_.target_tokens >= options.beam * (options.max_length + 1));
  const ValueSpec& logits = session.plan().graph().value(logits_).spec;
  TH_CHECK(logits.shape[1] == options.vocabulary);
  const ValueSpec& read = session.plan().graph().value(read_).spec;
  read_row_bytes_ = read.bytes() / static_cast<size_t>(read.shape[0]);
  const auto sentences = static_cast<size_t>(room_.sentences);
  slots_.reserve(sentences);
  for (size_t i = 0; i < sentences; ++i) {
    slots_.push_back({BeamSearch(options)});
    free_.push_back(sentences - 1 - i);
  }
  waiting_.reserve(sentences);
  group_.reserve(sentences);
  source_ends_.reserve(sentences);
}

size_t Decoder::BytesOf(const BeamOptions& options, int64_t sentences) {
  const size_t each = BeamSearch::BytesOf(options) + sizeof(Slot) +
                      3 * sizeof(size_t) + sizeof(int32_t);
  return each * static_cast<size_t>(sentences);
}

bool Decoder::HasRoom(int64_t source_tokens, int64_t target_tokens) const {
  const int64_t source = source_ends_.empty() ? 0 : source_ends_.back();
  return source + source_tokens <= room_.source_tokens &&
         target_tokens_ + target_tokens <= room_.target_tokens;
}

void Decoder::Join(size_t slot, Source source) {
  const int32_t begin = source_ends_.empty() ? 0 : source_ends_.back();
  group_.push_back(slot);
  source_ends_.push_back(begin + static_cast<int32_t>(source.size()));
  target_tokens_ += TargetTokens(slots_[slot]);
}

// Those that wait come first, in their order.
void Decoder::FormGroup(std::span<const Source> sources) {
  group_.clear();
  source_ends_.clear();
  target_tokens_ = 0;
  while (!waiting_.empty()) {
    const size_t slot = waiting_.back();
    const Source source = sources[slots_[slot].sentence];
    if (!HasRoom(std::ssize(source), TargetTokens(slots_[slot]))) return;
    waiting_.pop_back();
    Join(slot, source);
  }
  while (next_ < sources.size() && !free_.empty()) {
    const Source source = sources[next_];
    TH_CHECK(!source.empty() && std::ssize(source) <= room_.source_tokens);
    if (!HasRoom(std::ssize(source), 1)) return;
    const size_t slot = free_.back();
    free_.pop_back();
    slots_[slot].sentence = next_++;
    slots_[slot].search.Begin();
    Join(slot, source);
  }
}

void Decoder::LetLastWait() {
  const size_t slot = group_.back();
  target_tokens_ -= TargetTokens(slots_[slot]);
  group_.pop_back();
  source_ends_.pop_back();
  waiting_.push_back(slot);
}

AxisParts Decoder::Feed() {
  const auto tokens = session_.EvaluateFeed<int32_t>("target");
  const auto ends = session_.EvaluateFeed<int32_t>("target_ends");
  const auto groups = session_.EvaluateFeed<int32_t>("target_of_source_ends");
  size_t token = 0, hypothesis = 0;
  for (size_t i = 0; i < group_.size(); ++i) {
    const BeamSearch& search = slots_[group_[i]].search;
    for (int64_t h = 0; h < search.hypotheses(); ++h) {
      tokens[token++] = options_.end;
      const auto text = search.Hypothesis(h);
      std::ranges::copy(text, &tokens[token]);
      token += text.size();
      ends[hypothesis++] = static_cast<int32_t>(token);
    }
    groups[i] = static_cast<int32_t>(token);
  }
  std::ranges::copy(source_ends_,
                    session_.EvaluateFeed<int32_t>("source_ends").begin());
  const auto part = [](size_t count) {
    const auto n = static_cast<int64_t>(count);
    return AxisPart{.first = 0, .count = n, .total = n};
  };
  return {part(token), part(hypothesis), part(group_.size()),
          part(static_cast<size_t>(source_ends_.back()))};
}

void Decoder::ReadSources(std::span<const Source> sources) {
  const auto tokens = session_.EvaluateFeed<int32_t>("source");
  size_t at = 0;
  for (size_t slot : group_) {
    const Source source = sources[slots_[slot].sentence];
    std::ranges::copy(source, &tokens[at]);
    at += source.size();
  }
  session_.Evaluate(Feed());
}

void Decoder::ReadHypotheses() { session_.EvaluateBehind(read_, Feed()); }

void Decoder::MoveSource(size_t from, size_t to) {
  const auto end_of = [&](size_t i) {
    return i == 0 ? 0 : static_cast<size_t>(source_ends_[i - 1]);
  };
  const size_t begin = end_of(from), rows = end_of(from + 1) - begin;
  const size_t at = end_of(to);
  std::byte* read = session_.Bytes(read_).data();
  std::memmove(read + at * read_row_bytes_, read + begin * read_row_bytes_,
               rows * read_row_bytes_);
  // Places up to `from` are taken already.
  source_ends_[to] = static_cast<int32_t>(at + rows);
}

Status Decoder::Advance(const Found& found) {
  std::span<const float> logits = session_.Floats(logits_);
  size_t staying = 0;
  target_tokens_ = 0;
  for (size_t i = 0; i < group_.size(); ++i) {
    Slot& slot = slots_[group_[i]];
    const auto rows = static_cast<size_t>(slot.search.hypotheses()) *
                      static_cast<size_t>(options_.vocabulary);
    if (!slot.search.Advance(logits.first(rows))) {
      return Status::Failed(
          "the network's answers are no numbers: its weights have diverged");
    }
    logits = logits.subspan(rows);
    if (slot.search.is_done()) {
      found(slot.sentence, slot.search);
      free_.push_back(group_[i]);
      continue;
    }
    if (staying < i) {
      MoveSource(i, staying);
      group_[staying] = group_[i];
    }
    ++staying;
    target_tokens_ += TargetTokens(slot);
  }
  group_.resize(staying);
  source_ends_.resize(staying);
  return Status::Ok();
}

Status Decoder::Translate(std::span<const Source> sources, const Found& found) {
  // As after a failure too.
  free_.clear();
  waiting_.clear();
  for (size_t i = slots_.size(); i-- > 0;) free_.push_back(i);
  next_ = 0;
  while (next_ < sources.size() || !waiting_.empty()) {
    FormGroup(sources);
    ReadSources(sources);
    for (;;) {
      TH_RETURN_IF_ERROR(Advance(found));
      while (target_tokens_ > room_.target_tokens) LetLastWait();
      if (group_.empty()) break;
      ReadHypotheses();
    }
  }
  return Status::Ok();
}

}  // namespace thimble::translate
