// SPDX-License-Identifier: Apache-2.0
//
// PrepareText makes of plain text what TextData reads: sentences as tokens, the
// codes that divide words, and dictionaries. The text is read line by line, any
// number of times, and never held in memory.
//
// Plain structs; a call belongs to one thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "thimble/status.h"
#include "thimble/text_data.h"

namespace thimble {

struct PrepareProgress {
  const char* doing;  // "counting words", "learning codes", ...
  uint64_t done;      // of `total`, in units that differ
  uint64_t total;
};

struct PrepareOptions {
  // Holds the text: files NAME.LANGUAGE, with a sentence on each line, words
  // divided by spaces; line n of two languages mean the same. Of names there
  // are `train`, and those of `valid` and `test` that are there.
  std::string dir;
  std::string source, target;  // languages
  std::string valid = "valid";
  std::string test;  // empty: "test", if it is there
  // What is written; must not be there yet. Empty: prepared-SOURCE-TARGET in
  // `dir`.
  std::string out;
  // Codes that are learned of both languages together, if no file of codes is
  // given.
  int64_t merges = 10'000;
  std::string codes;
  // A prepared folder whose dictionaries are used, and whose codes, if no
  // others are given. What is not in them is unknown.
  std::string dictionaries;
  // Pairs to train and validate on are left out where a side is longer, in
  // tokens with its end;
  int64_t max_length = 250;
  // or where one side has more than `ratio` times the words of the other. 0: no
  // limit. Those to test on are all kept.
  double ratio = 0;
  // Of the order of sentences of one length.
  uint64_t seed = 1;
  // What counting words and sorting sentences may take, each; with more words
  // than fit, the rarest are not learned from.
  uint64_t memory = uint64_t{256} << 20;
  // Both are looked at many times a second.
  std::function<void(const PrepareProgress&)> progress;
  const std::atomic<bool>* stop = nullptr;
};

// By side: [0] of the source, [1] of the target.
using BySide = std::array<int64_t, kTextSides>;

struct PreparedSplit {
  int64_t lines = 0;  // of the text
  int64_t pairs = 0;  // of them, what is in the tokens
  // Why others are not: a side without words, too long, lengths too different.
  int64_t empty = 0, too_long = 0, uneven = 0;
  BySide tokens = {};   // with ends
  BySide unknown = {};  // of them
  BySide longest = {};
};

struct PrepareSummary {
  std::string out;
  int64_t codes = 0;
  BySide vocabulary = {};
  // Words and pieces for which the dictionaries had no number left.
  BySide unlisted = {};
  // How often a word was not counted on, for want of memory.
  int64_t forgotten = 0;
  std::array<std::optional<PreparedSplit>, kTextSplits> splits;
};

// Nothing is left behind where it fails, or is stopped.
Result<PrepareSummary> PrepareText(const PrepareOptions& options);

}  // namespace thimble
