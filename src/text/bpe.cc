// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/utf8.h"
#include "text/lines.h"

namespace thimble::text {
namespace {

constexpr std::string_view kVersionLine = "#version: 0.2";
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
constexpr size_t kLongestCached = 256;

uint64_t KeyOf(uint32_t left, uint32_t right) {
  return (uint64_t{left} << 32) | right;
}

Status BadLine(const std::string& name, size_t number, const char* what) {
  return Status::Failed(fmt::format("{}:{}: {}", name, number, what));
}

}  // namespace

Result<PairCodes> ParseCodes(const std::string& name, std::string_view text) {
  PairCodes codes;
  size_t number = 0;
  while (!text.empty() || number == 0) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    while (line.ends_with(' ')) line.remove_suffix(1);
    if (number == 1) {
      if (line == kVersionLine) continue;
      return BadLine(name, 1,
                     "these are no byte-pair codes of subword-nmt's version "
                     "0.2, whose first line is '#version: 0.2'");
    }
    const size_t space = line.find(' ');
    const std::string_view left = line.substr(0, space);
    const std::string_view right =
        space == line.npos ? "" : line.substr(space + 1);
    if (left.empty() || right.empty() || right.find(' ') != right.npos) {
      return BadLine(name, number,
                     "a code is two symbols with a space between");
    }
    if (!IsUtf8(line) || line.find('\0') != line.npos) {
      return BadLine(name, number, "the line is no UTF-8");
    }
    codes.push_back({std::string(left), std::string(right)});
  }
  return codes;
}

Result<PairCodes> ReadCodes(const std::string& path) {
  TH_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path));
  return ParseCodes(path, text);
}

std::string CodesText(const PairCodes& codes) {
  std::string text = fmt::format("{}\n", kVersionLine);
  for (const PairCode& code : codes) {
    text += fmt::format("{} {}\n", code.left, code.right);
  }
  return text;
}

Segmenter::Segmenter(const PairCodes& codes, size_t cache_bytes)
    : cache_bytes_(cache_bytes) {
  const auto symbol = [this](const std::string& text) {
    return symbols_.try_emplace(text, static_cast<uint32_t>(symbols_.size()))
        .first->second;
  };
  uint32_t rank = 0;
  for (const auto& [left, right] : codes) {
    const uint64_t key = KeyOf(symbol(left), symbol(right));
    // Of two that are alike the first one counts.
    merges_.try_emplace(key, Merge{rank++, symbol(left + right)});
  }
}

uint32_t Segmenter::SymbolOf(const std::string& text) const {
  const auto found = symbols_.find(text);
  return found == symbols_.end() ? kNone : found->second;
}

const Segmenter::Merge* Segmenter::MergeAt(uint32_t node) const {
  const Node& left = nodes_[node];
  if (!left.is_alive || left.next == kNone) return nullptr;
  const auto found = merges_.find(KeyOf(left.symbol, nodes_[left.next].symbol));
  return found == merges_.end() ? nullptr : &found->second;
}

void Segmenter::Begin(std::string_view word) {
  nodes_.clear();
  waiting_.clear();
  std::string character;
  for (size_t at = 0; at < word.size();) {
    const size_t bytes = Utf8Bytes(word.substr(at));
    TH_CHECK(bytes > 0);
    character = word.substr(at, bytes);
    at += bytes;
    if (at == word.size()) character += kWordEnd;
    const auto node = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back({SymbolOf(character), static_cast<uint32_t>(at), node - 1,
                      node + 1, true});
  }
  nodes_.front().previous = kNone;
  nodes_.back().next = kNone;
  for (uint32_t node = 0; node < nodes_.size(); ++node) Wait(node);
}

void Segmenter::Wait(uint32_t node) {
  const Merge* merge = MergeAt(node);
  if (merge == nullptr) return;
  waiting_.emplace_back(merge->rank, node);
  std::ranges::push_heap(waiting_, std::greater<>());
}

void Segmenter::Round() {
  const uint32_t rank = waiting_.front().first;
  merged_.clear();
  // From left to right, since nodes of one rank come in their order.
  while (!waiting_.empty() && waiting_.front().first == rank) {
    const uint32_t node = waiting_.front().second;
    std::ranges::pop_heap(waiting_, std::greater<>());
    waiting_.pop_back();
    const Merge* merge = MergeAt(node);
    // One of the two was taken meanwhile.
    if (merge == nullptr || merge->rank != rank) continue;
    Node& left = nodes_[node];
    Node& right = nodes_[left.next];
    left.symbol = merge->symbol;
    left.end = right.end;
    left.next = right.next;
    right.is_alive = false;
    if (left.next != kNone) nodes_[left.next].previous = node;
    merged_.push_back(node);
  }
  // Only now: a pair that is new waits for the next round, even if its code
  // comes earlier.
  for (const uint32_t node : merged_) {
    if (nodes_[node].previous != kNone) Wait(nodes_[node].previous);
    Wait(node);
  }
}

std::span<const uint32_t> Segmenter::Split(std::string_view word) {
  const bool may_keep = word.size() <= kLongestCached && cache_bytes_ > 0;
  std::string kept;
  if (may_keep) {
    kept = word;
    const auto found = cache_.find(kept);
    if (found != cache_.end()) return found->second;
  }
  Begin(word);
  while (!waiting_.empty()) Round();
  ends_.clear();
  for (uint32_t node = 0; node != kNone; node = nodes_[node].next) {
    ends_.push_back(nodes_[node].end);
  }
  if (!may_keep) return ends_;
  // What containers take beside, roughly.
  constexpr size_t kBeside = 120;
  cached_bytes_ += word.size() + 4 * ends_.size() + kBeside;
  if (cached_bytes_ > cache_bytes_) {
    cache_.clear();
    cached_bytes_ = 0;
    return ends_;
  }
  return cache_.try_emplace(std::move(kept), ends_).first->second;
}

}  // namespace thimble::text
