// SPDX-License-Identifier: Apache-2.0
#include "text/pair_sorter.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

namespace thimble::text {
namespace {

// Of a run, at least: fewer bytes at a time are slow.
constexpr size_t kLeastPiece = size_t{1} << 14;
constexpr size_t kMostPiece = size_t{1} << 20;

}  // namespace

bool PairSorter::Head::operator<(const Head& other) const {
  return std::tie(source, target, chance, line) <
         std::tie(other.source, other.target, other.chance, other.line);
}

PairSorter::PairSorter(std::string path, uint64_t seed, size_t bytes)
    : path_(std::move(path)), seed_(seed), most_(bytes) {}

Status PairSorter::Add(uint32_t line, std::span<const uint32_t> source,
                       std::span<const uint32_t> target) {
  const PhiloxBlock bits = RandomStream(seed_, 0, kTextOrderStream).Block(line);
  entries_.push_back({{static_cast<uint16_t>(source.size()),
                       static_cast<uint16_t>(target.size()), line,
                       (uint64_t{bits[1]} << 32) | bits[0]},
                      tokens_.size()});
  tokens_.insert(tokens_.end(), source.begin(), source.end());
  tokens_.insert(tokens_.end(), target.begin(), target.end());
  // Vectors have up to twice as much room, while they grow.
  const size_t taken =
      2 * (entries_.size() * sizeof(Entry) + tokens_.size() * sizeof(uint32_t));
  return taken < most_ ? Status::Ok() : Spill();
}

void PairSorter::SortEntries() {
  std::ranges::sort(
      entries_, [](const Entry& a, const Entry& b) { return a.head < b.head; });
}

Status PairSorter::Spill() {
  if (!writer_.has_value()) {
    TH_ASSIGN_OR_RETURN(AtomicFileWriter made, AtomicFileWriter::Create(path_));
    writer_.emplace(std::move(made));
  }
  SortEntries();
  const uint64_t begin = writer_->bytes_written();
  std::vector<std::byte> pending;
  const auto put = [&pending](const auto* from, size_t count) {
    const auto bytes = std::as_bytes(std::span(from, count));
    pending.insert(pending.end(), bytes.begin(), bytes.end());
  };
  for (const Entry& entry : entries_) {
    put(&entry.head, 1);
    put(&tokens_[entry.at], entry.head.tokens());
    if (pending.size() < kLeastPiece) continue;
    TH_RETURN_IF_ERROR(writer_->Write(pending));
    pending.clear();
  }
  TH_RETURN_IF_ERROR(writer_->Write(pending));
  runs_.push_back({.offset = begin, .end = writer_->bytes_written()});
  entries_.clear();
  tokens_.clear();
  return Status::Ok();
}

Status PairSorter::Finish() {
  if (!writer_.has_value()) {
    SortEntries();
    return Status::Ok();
  }
  if (!entries_.empty()) TH_RETURN_IF_ERROR(Spill());
  entries_ = {};
  tokens_ = {};
  TH_RETURN_IF_ERROR(writer_->Commit());
  TH_ASSIGN_OR_RETURN(file_, OpenForReading(path_));
  // It is there for as long as it is open, and nobody else needs it.
  unlink(path_.c_str());
  const size_t piece =
      std::clamp(most_ / runs_.size(), kLeastPiece, kMostPiece);
  for (size_t run = 0; run < runs_.size(); ++run) {
    runs_[run].buffer.resize(piece);
    TH_RETURN_IF_ERROR(Queue(run));
  }
  return Status::Ok();
}

Status PairSorter::Queue(size_t run) {
  TH_ASSIGN_OR_RETURN(const bool has_more, Advance(&runs_[run]));
  if (!has_more) {
    runs_[run].buffer = {};
    return Status::Ok();
  }
  waiting_.push_back(run);
  std::ranges::push_heap(waiting_, [this](size_t a, size_t b) {
    return runs_[b].head < runs_[a].head;
  });
  return Status::Ok();
}

Status PairSorter::Read(Run* run, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    if (run->at == run->filled) {
      run->at = 0;
      run->filled = static_cast<size_t>(
          std::min<uint64_t>(run->buffer.size(), run->end - run->offset));
      TH_RETURN_IF_ERROR(ReadFullyAt(
          file_, std::span(run->buffer).first(run->filled), run->offset));
      run->offset += run->filled;
    }
    const size_t count = std::min(bytes.size(), run->filled - run->at);
    TH_CHECK(count > 0);
    std::memcpy(bytes.data(), &run->buffer[run->at], count);
    run->at += count;
    bytes = bytes.subspan(count);
  }
  return Status::Ok();
}

Result<bool> PairSorter::Advance(Run* run) const {
  if (run->at == run->filled && run->offset == run->end) return false;
  TH_RETURN_IF_ERROR(
      Read(run, std::as_writable_bytes(std::span(&run->head, 1))));
  run->tokens.resize(run->head.tokens());
  TH_RETURN_IF_ERROR(Read(run, std::as_writable_bytes(std::span(run->tokens))));
  return true;
}

PairSorter::Pair PairSorter::PairOf(const Head& head,
                                    std::span<const uint32_t> tokens) {
  return {head.line, tokens.first(head.source),
          tokens.subspan(head.source, head.target)};
}

Result<bool> PairSorter::Next(Pair* pair) {
  if (runs_.empty()) {
    if (given_ == entries_.size()) return false;
    const Entry& entry = entries_[given_++];
    *pair = PairOf(entry.head, std::span(tokens_).subspan(entry.at));
    return true;
  }
  if (last_.has_value()) {
    const size_t run = *std::exchange(last_, std::nullopt);
    TH_RETURN_IF_ERROR(Queue(run));
  }
  if (waiting_.empty()) return false;
  std::ranges::pop_heap(waiting_, [this](size_t a, size_t b) {
    return runs_[b].head < runs_[a].head;
  });
  last_ = waiting_.back();
  waiting_.pop_back();
  *pair = PairOf(runs_[*last_].head, runs_[*last_].tokens);
  return true;
}

}  // namespace thimble::text
