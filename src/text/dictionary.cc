// SPDX-License-Identifier: Apache-2.0
#include "text/dictionary.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/utf8.h"
#include "text/bpe.h"
#include "text/lines.h"
#include "thimble/number.h"

namespace thimble {
namespace {

constexpr std::string_view kSpecialNames[] = {"<none>", "<pad>", "</s>",
                                              "<unk>"};

bool IsWord(std::string_view word) {
  const auto is_space = [](char c) {
    return static_cast<unsigned char>(c) <= ' ';
  };
  return !word.empty() && IsUtf8(word) && std::ranges::none_of(word, is_space);
}

}  // namespace

namespace text {

void SortWords(std::vector<CountedWord>* words) {
  std::ranges::sort(*words, [](const CountedWord& a, const CountedWord& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (std::ssize(*words) > kMostWords) {
    words->resize(static_cast<size_t>(kMostWords));
  }
}

std::string DictionaryText(const std::vector<CountedWord>& words) {
  std::string text;
  for (const auto& [word, count] : words) {
    text += fmt::format("{} {}\n", word, count);
  }
  return text;
}

}  // namespace text

Result<Dictionary> Dictionary::Read(const std::string& path) {
  TH_ASSIGN_OR_RETURN(const std::string text, text::ReadSmallFile(path));
  Dictionary dictionary;
  TH_RETURN_IF_ERROR(dictionary.Parse(path, text));
  return dictionary;
}

Status Dictionary::Parse(const std::string& name, std::string_view text) {
  begins_.push_back(0);
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const size_t space = std::min(line.rfind(' '), line.size());
    const std::string_view word = line.substr(0, space);
    const bool is_counted =
        space < line.size() && ParseWhole(line.substr(space + 1)).has_value();
    if (!IsWord(word) || !is_counted) {
      return Status::Failed(fmt::format(
          "{}:{}: the line of a dictionary is a word, a space and how often "
          "it occurs",
          name, number));
    }
    if (words() == text::kMostWords) {
      return Status::Failed(
          fmt::format("{}:{}: a dictionary has at most {} words", name, number,
                      text::kMostWords));
    }
    text_ += word;
    begins_.push_back(static_cast<uint32_t>(text_.size()));
  }
  ordered_.resize(static_cast<size_t>(words()));
  std::iota(ordered_.begin(), ordered_.end(), 0);
  const auto at = [this](uint32_t i) { return WordAt(i); };
  std::ranges::sort(ordered_, {}, at);
  const auto twice = std::ranges::adjacent_find(ordered_, {}, at);
  if (twice == ordered_.end()) return Status::Ok();
  return Status::Failed(fmt::format(
      "{}:{}: the word of line {} again; each word has one line", name,
      std::max(twice[0], twice[1]) + 1, std::min(twice[0], twice[1]) + 1));
}

std::string_view Dictionary::WordAt(size_t i) const {
  return std::string_view(text_).substr(begins_[i],
                                        begins_[i + 1] - begins_[i]);
}

int64_t Dictionary::size() const { return text::VocabularyOf(words()); }

std::string_view Dictionary::Text(int32_t token) const {
  TH_CHECK(token >= 0 && token < size());
  if (token < kFirstWord) return kSpecialNames[token];
  const int32_t word = token - kFirstWord;
  return word < words() ? WordAt(static_cast<size_t>(word)) : kSpecialNames[0];
}

int32_t Dictionary::Find(std::string_view word) const {
  const auto at = [this](uint32_t i) { return WordAt(i); };
  const auto found = std::ranges::lower_bound(ordered_, word, {}, at);
  if (found == ordered_.end() || WordAt(*found) != word) return kUnknownToken;
  return kFirstWord + static_cast<int32_t>(*found);
}

std::string Dictionary::Join(std::span<const int32_t> tokens) const {
  std::string line;
  bool goes_on = true;  // the word, or nothing is there yet
  for (const int32_t token : tokens) {
    if (token == kEndToken || token == kPadToken) continue;
    if (!goes_on) line += ' ';
    std::string_view piece = Text(token);
    goes_on = token >= kFirstWord && piece.ends_with(text::kGoesOn);
    if (goes_on) piece.remove_suffix(text::kGoesOn.size());
    line += piece;
  }
  return line;
}

}  // namespace thimble
