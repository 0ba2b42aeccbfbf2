// SPDX-License-Identifier: Apache-2.0
//
// PairSorter: pairs of sentences in the order of their lengths, source first,
// then target, those of one length in an order that a seed shuffles. In bounded
// memory: what does not fit is sorted in runs, which go to a file and are
// merged. Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "thimble/status.h"

namespace thimble::text {

class PairSorter {
 public:
  struct Pair {
    uint32_t line = 0;
    std::span<const uint32_t> source, target;
  };

  // `path` is for the file, which has no name any more once Finish is done.
  // Takes `bytes` of memory, and what the longest pair needs for each run.
  PairSorter(std::string path, uint64_t seed, size_t bytes);
  PairSorter(const PairSorter&) = delete;
  PairSorter& operator=(const PairSorter&) = delete;

  // REQUIRES: up to 65,535 tokens per side.
  Status Add(uint32_t line, std::span<const uint32_t> source,
             std::span<const uint32_t> target);
  // All pairs are there. REQUIRES: called once, before Next.
  Status Finish();
  // Whether there was a further pair, which is in `pair` until the next call.
  Result<bool> Next(Pair* pair);

 private:
  // What decides the order, and how many tokens there are.
  struct Head {
    uint16_t source, target;
    uint32_t line;
    uint64_t chance;

    size_t tokens() const { return size_t{source} + size_t{target}; }
    bool operator<(const Head& other) const;
  };
  struct Entry {
    Head head;
    size_t at;  // of its tokens
  };
  // A part of the file that is sorted, a piece of which is in memory.
  struct Run {
    uint64_t offset, end;  // of what has not been read
    std::vector<std::byte> buffer = {};
    size_t at = 0, filled = 0;
    Head head = {};
    std::vector<uint32_t> tokens = {};
  };

  void SortEntries();
  Status Spill();
  // Reads the run's next pair, if there is one.
  Result<bool> Advance(Run* run) const;
  Status Read(Run* run, std::span<std::byte> bytes) const;
  // Puts the run in its place by its next pair, or drops it.
  Status Queue(size_t run);
  static Pair PairOf(const Head& head, std::span<const uint32_t> tokens);

  const std::string path_;
  const uint64_t seed_;
  const size_t most_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> tokens_;
  size_t given_ = 0;  // entries, where there are no runs
  std::optional<AtomicFileWriter> writer_;
  FileDescriptor file_;
  std::vector<Run> runs_;
  std::vector<size_t> waiting_;  // runs, a heap by their pairs
  std::optional<size_t> last_;   // the run whose pair was given last
};

}  // namespace thimble::text
