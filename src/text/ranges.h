// SPDX-License-Identifier: Apache-2.0
//
// Ranges of a split's records that belong together: batches, and microbatches.
// Which there are follows from the lengths of the records. So all that is kept
// of a text, however long it is, is where some of them begin, and the records
// of one of them.
//
// Functions are pure. Ranges belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "thimble/status.h"
#include "thimble/text_data.h"

namespace thimble::text {

inline constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Records one after the other.
struct Extent {
  uint64_t bytes = 0;
  int64_t pairs = 0;
  int64_t source = 0;  // tokens
  int64_t target = 0;
};

// What a range may hold. It is the longest such one from its first record on.
struct Rule {
  // Pairs times the longest sentence of either side, if it is that which
  // counts. Then a range of 8 pairs or more has a multiple of 8, unless it is
  // the last one.
  int64_t padded = kNoLimit;
  // Or what there is room for.
  int64_t pairs = kNoLimit;
  int64_t source = kNoLimit;
  int64_t target = kNoLimit;
};

// The record at byte `at` of `bytes`; none where it is not whole, or has an
// empty side.
std::optional<TextRecord> RecordAt(std::span<const std::byte> bytes,
                                   uint64_t at);

// The range that `bytes` begin with, which are all there are if `is_all`; none
// where they are no records, or the first one is too long.
std::optional<Extent> RangeAt(std::span<const std::byte> bytes, bool is_all,
                              const Rule& rule);

// Where each range begins: of every stride-th one, so that it takes 64 KiB at
// most.
class Begins {
 public:
  void Add(uint64_t offset);
  int64_t count() const { return count_; }
  // The known beginning of range i or of one before it,
  uint64_t Before(int64_t i) const {
    return offsets_[static_cast<size_t>(i / stride_)];
  }
  // and how many ranges before it that is.
  int64_t Behind(int64_t i) const { return i % stride_; }

 private:
  std::vector<uint64_t> offsets_;
  int64_t stride_ = 1;
  int64_t count_ = 0;
};

// All ranges of a split, found by their number. The data must outlive it.
class Ranges {
 public:
  // Reads the split. REQUIRES: the rule has room for each of its records.
  static Result<Ranges> Of(const TextData& data, TextSplit split,
                           const Rule& rule);

  int64_t count() const { return begins_.count(); }
  // Range i, whose records are loaded() then, and others behind them. Allocates
  // nothing when it succeeds.
  Result<Extent> Load(int64_t i);
  std::span<const std::byte> loaded() const { return loaded_; }
  // For whoever finds that the records are not as they were.
  Status Changed() const;

 private:
  Ranges(const TextData& data, TextSplit split, const Rule& rule)
      : data_(&data), split_(split), rule_(rule) {}
  Status Find();
  Status LoadFrom(uint64_t offset);
  // The range at byte `at` of what is loaded.
  Result<Extent> RangeIn(uint64_t at) const;

  const TextData* data_;
  TextSplit split_;
  Rule rule_;
  Begins begins_;
  std::vector<std::byte> room_;
  std::span<const std::byte> loaded_;
  bool reaches_end_ = false;
};

}  // namespace thimble::text
