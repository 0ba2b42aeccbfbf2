// SPDX-License-Identifier: Apache-2.0
#include "text/ranges.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace thimble::text {
namespace {

// Pairs of larger batches come in multiples of it.
constexpr int64_t kPairsTogether = 8;
constexpr size_t kMostBegins = 8192;

// Enough to find any range in, and the head of the record behind it.
uint64_t MostBytes(const TextData& data, TextSplit split, const Rule& rule) {
  // A sentence has a token at least.
  const int64_t pairs = std::min(
      {data.pairs(split), rule.padded, rule.pairs, rule.source, rule.target});
  const auto tokens = [&](TextSide side, int64_t room) {
    return std::min({rule.padded, room, pairs * data.longest(split, side)});
  };
  const int64_t both = tokens(TextSide::kSource, rule.source) +
                       tokens(TextSide::kTarget, rule.target);
  return TextRecord::kHeadBytes * static_cast<uint64_t>(pairs + 1) +
         2 * static_cast<uint64_t>(both);
}

size_t RoomFor(const TextData& data, TextSplit split, uint64_t bytes) {
  return static_cast<size_t>(std::min(bytes, data.bytes(split)));
}

}  // namespace

std::optional<TextRecord> RecordAt(std::span<const std::byte> bytes,
                                   uint64_t at) {
  if (bytes.size() - at < TextRecord::kHeadBytes) return std::nullopt;
  const TextRecord record = TextRecord::At(bytes.subspan(at));
  if (record.source == 0 || record.target == 0 ||
      bytes.size() - at < record.bytes()) {
    return std::nullopt;
  }
  return record;
}

std::optional<Extent> RangeAt(std::span<const std::byte> bytes, bool is_all,
                              const Rule& rule) {
  Extent now;
  Extent in_eights;
  int64_t longest = 0;
  while (true) {
    if (is_all && now.bytes == bytes.size()) return now;
    // Of the record behind the range only the head may be there.
    if (bytes.size() - now.bytes < TextRecord::kHeadBytes) return std::nullopt;
    const TextRecord record = TextRecord::At(bytes.subspan(now.bytes));
    const int64_t source = record.source, target = record.target;
    longest = std::max({longest, source, target});
    const bool fits = longest <= rule.padded / (now.pairs + 1) &&
                      now.pairs < rule.pairs &&
                      source <= rule.source - now.source &&
                      target <= rule.target - now.target;
    if (!fits) break;
    if (!RecordAt(bytes, now.bytes).has_value()) return std::nullopt;
    now.bytes += record.bytes();
    ++now.pairs;
    now.source += source;
    now.target += target;
    if (now.pairs % kPairsTogether == 0) in_eights = now;
  }
  if (now.pairs == 0) return std::nullopt;
  return rule.padded != kNoLimit && in_eights.pairs > 0 ? in_eights : now;
}

void Begins::Add(uint64_t offset) {
  if (offsets_.size() == kMostBegins && count_ % stride_ == 0) {
    for (size_t i = 0; i < kMostBegins / 2; ++i) offsets_[i] = offsets_[2 * i];
    offsets_.resize(kMostBegins / 2);
    stride_ *= 2;
  }
  if (count_ % stride_ == 0) offsets_.push_back(offset);
  ++count_;
}

Result<Ranges> Ranges::Of(const TextData& data, TextSplit split,
                          const Rule& rule) {
  Ranges ranges(data, split, rule);
  TH_RETURN_IF_ERROR(ranges.Find());
  ranges.room_ = std::vector<std::byte>(
      RoomFor(data, split, MostBytes(data, split, rule)));
  return ranges;
}

Status Ranges::Find() {
  // More than is kept later, so that little is read twice.
  constexpr uint64_t kAhead = uint64_t{1} << 17;
  const uint64_t most = MostBytes(*data_, split_, rule_);
  room_.resize(RoomFor(*data_, split_, most + kAhead));
  uint64_t offset = 0;
  while (offset < data_->bytes(split_)) {
    TH_RETURN_IF_ERROR(LoadFrom(offset));
    uint64_t at = 0;
    while (at < loaded_.size() &&
           (reaches_end_ || loaded_.size() - at >= most)) {
      TH_ASSIGN_OR_RETURN(const Extent range, RangeIn(at));
      begins_.Add(offset + at);
      at += range.bytes;
    }
    offset += at;
  }
  return Status::Ok();
}

Status Ranges::LoadFrom(uint64_t offset) {
  const auto piece = std::span(room_).first(static_cast<size_t>(
      std::min<uint64_t>(room_.size(), data_->bytes(split_) - offset)));
  loaded_ = piece;
  reaches_end_ = offset + piece.size() == data_->bytes(split_);
  return data_->Read(split_, offset, piece);
}

Result<Extent> Ranges::Load(int64_t i) {
  uint64_t offset = begins_.Before(i);
  for (int64_t before = begins_.Behind(i);; --before) {
    TH_RETURN_IF_ERROR(LoadFrom(offset));
    TH_ASSIGN_OR_RETURN(const Extent range, RangeIn(0));
    if (before == 0) return range;
    offset += range.bytes;
  }
}

Result<Extent> Ranges::RangeIn(uint64_t at) const {
  const auto range = RangeAt(loaded_.subspan(at), reaches_end_, rule_);
  if (!range.has_value()) return Changed();
  return *range;
}

Status Ranges::Changed() const {
  return Status::Failed(
      fmt::format("{}/{}.tokens was changed while it was in use; prepare the "
                  "text again, and resume",
                  data_->name(), TextSplitName(split_)));
}

}  // namespace thimble::text
