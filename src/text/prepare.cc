// SPDX-License-Identifier: Apache-2.0
//
// The text is read twice: to count words, unless codes are given, and to make
// tokens. Those to train on get numbers as they come, which are changed to the
// dictionary's once all have been counted: on the way from the sorter to the
// file.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "text/bpe.h"
#include "text/dictionary.h"
#include "text/meaning.h"
#include "text/new_folder.h"
#include "text/pair_reader.h"
#include "text/pair_sorter.h"
#include "text/pieces.h"
#include "text/prepared_json.h"
#include "text/token_file.h"
#include "text/word_counts.h"
#include "thimble/prepare_text.h"

namespace thimble {
namespace text {
namespace {

using Paths = std::array<std::string, kTextSides>;

class Preparer {
 public:
  Preparer(const PrepareOptions& options, NewFolder folder)
      : options_(options),
        folder_(std::move(folder)),
        sorter_(folder_.File("sorting"), options.seed,
                static_cast<size_t>(options.memory)) {}

  Result<PrepareSummary> Run(std::string out) {
    summary_.out = std::move(out);
    TH_RETURN_IF_ERROR(MakeCodes());
    TH_RETURN_IF_ERROR(SortTraining());
    TH_RETURN_IF_ERROR(MakeDictionaries());
    TH_RETURN_IF_ERROR(WriteTraining());
    TH_RETURN_IF_ERROR(
        WriteOther(TextSplit::kValid, options_.valid, /*may_lack=*/true));
    const bool is_named = !options_.test.empty();
    TH_RETURN_IF_ERROR(WriteOther(TextSplit::kTest,
                                  is_named ? options_.test : "test",
                                  /*may_lack=*/!is_named));
    TH_RETURN_IF_ERROR(WriteFacts(options_, summary_, folder_));
    TH_RETURN_IF_ERROR(Told("", 0, 0));
    TH_RETURN_IF_ERROR(folder_.Commit());
    return std::move(summary_);
  }

 private:
  // To be called now and then; an error where it is to end.
  Status Told(const char* doing, uint64_t done, uint64_t total) const {
    if (options_.stop != nullptr &&
        options_.stop->load(std::memory_order_relaxed)) {
      return Status::Failed("stopped; nothing was written");
    }
    if (options_.progress && total > 0) options_.progress({doing, done, total});
    return Status::Ok();
  }

  Paths PathsOf(const std::string& name) const {
    return {fmt::format("{}/{}.{}", options_.dir, name, options_.source),
            fmt::format("{}/{}.{}", options_.dir, name, options_.target)};
  }

  // Calls `each` for all pairs of lines.
  Status ForEachPair(const Paths& paths, const char* doing,
                     const std::function<Status(const PairReader&)>& each) {
    constexpr uint32_t kBetween = 256;
    TH_ASSIGN_OR_RETURN(PairReader reader, PairReader::Open(paths));
    while (true) {
      TH_ASSIGN_OR_RETURN(const bool more, reader.Next());
      if (!more) return Status::Ok();
      if (reader.number() % kBetween == 0) {
        TH_RETURN_IF_ERROR(Told(doing, reader.bytes_read(), reader.bytes()));
      }
      TH_RETURN_IF_ERROR(each(reader));
    }
  }

  Status MakeCodes() {
    std::string path = options_.codes;
    if (path.empty() && !options_.dictionaries.empty()) {
      path = options_.dictionaries + "/" + kCodesName;
    }
    PairCodes codes;
    if (path.empty()) {
      TH_ASSIGN_OR_RETURN(codes, Learn());
    } else {
      TH_ASSIGN_OR_RETURN(codes, ReadCodes(path));
    }
    summary_.codes = std::ssize(codes);
    segmenter_.emplace(codes);
    return folder_.Write(kCodesName, CodesText(codes));
  }

  Result<PairCodes> Learn() {
    WordCounts words(static_cast<size_t>(options_.memory));
    TH_RETURN_IF_ERROR(ForEachPair(
        PathsOf("train"), "counting words", [&](const PairReader& reader) {
          for (size_t side = 0; side < kTextSides; ++side) {
            ForEachWord(reader.line(side),
                        [&](std::string_view word) { words.Add(word); });
          }
          return Status::Ok();
        }));
    summary_.forgotten = static_cast<int64_t>(words.forgotten());
    const auto merges = static_cast<uint64_t>(options_.merges);
    TH_RETURN_IF_ERROR(Told("learning codes", 0, merges));
    return LearnCodes(words, options_.merges, [&](int64_t done) {
      return Told("learning codes", static_cast<uint64_t>(done), merges);
    });
  }

  // Calls `each` with the pieces of a line; returns how many words it has.
  template <typename Each>
  int64_t EachPieceOf(std::string_view line, const Each& each) {
    int64_t words = 0;
    ForEachWord(line, [&](std::string_view word) {
      ++words;
      ForEachPiece(*segmenter_, word, &piece_, each);
    });
    return words;
  }

  // Whether a pair is kept, counted in `split`. Lengths count ends.
  bool Keeps(const BySide& words, const BySide& lengths,
             PreparedSplit* split) const {
    if (std::min(words[0], words[1]) == 0) {
      ++split->empty;
      return false;
    }
    if (std::max(lengths[0], lengths[1]) > options_.max_length) {
      ++split->too_long;
      return false;
    }
    const auto most = static_cast<double>(std::max(words[0], words[1]));
    const auto least = static_cast<double>(std::min(words[0], words[1]));
    if (options_.ratio > 0 && most > options_.ratio * least) {
      ++split->uneven;
      return false;
    }
    return true;
  }

  Status SortTraining() {
    PreparedSplit& split = *(summary_.splits[0] = PreparedSplit());
    std::array<std::vector<uint32_t>, kTextSides> numbers;
    TH_RETURN_IF_ERROR(ForEachPair(
        PathsOf("train"), "dividing words", [&](const PairReader& reader) {
          ++split.lines;
          BySide words, lengths;
          for (size_t side = 0; side < kTextSides; ++side) {
            numbers[side].clear();
            words[side] =
                EachPieceOf(reader.line(side), [&](const std::string& piece) {
                  numbers[side].push_back(pieces_[side].NumberOf(piece));
                });
            lengths[side] = std::ssize(numbers[side]) + 1;
          }
          if (!Keeps(words, lengths, &split)) return Status::Ok();
          for (size_t side = 0; side < kTextSides; ++side) {
            pieces_[side].Count(numbers[side]);
          }
          ++split.pairs;
          return sorter_.Add(reader.number(), numbers[0], numbers[1]);
        }));
    if (split.pairs == 0) {
      return Status::Failed(fmt::format(
          "no pair of {} lines of {} is left to train on: a side of {} has no "
          "words, {} are longer than PrepareOptions::max_length {}, {} differ "
          "more than PrepareOptions::ratio {:g}",
          split.lines, PathsOf("train")[0], split.empty, split.too_long,
          options_.max_length, split.uneven, options_.ratio));
    }
    return sorter_.Finish();
  }

  Status MakeDictionaries() {
    for (size_t side = 0; side < kTextSides; ++side) {
      const char* const name = kDictionaryNames[side];
      std::string text;
      if (options_.dictionaries.empty()) {
        std::vector<CountedWord> words = pieces_[side].Counted();
        const int64_t all = std::ssize(words);
        SortWords(&words);
        summary_.unlisted[side] = all - std::ssize(words);
        text = DictionaryText(words);
      } else {
        TH_ASSIGN_OR_RETURN(text, ReadSmallFile(fmt::format(
                                      "{}/{}", options_.dictionaries, name)));
      }
      TH_RETURN_IF_ERROR(folder_.Write(name, text));
      auto dictionary = Dictionary::Read(folder_.File(name));
      if (!dictionary.ok()) {
        // A given one is known by its own name.
        return Dictionary::Read(
                   fmt::format("{}/{}", options_.dictionaries, name))
            .status();
      }
      summary_.vocabulary[side] = dictionary->size();
      dictionaries_[side] = *std::move(dictionary);
    }
    return Status::Ok();
  }

  Result<TokenFileWriter> WriterOf(TextSplit split) const {
    return TokenFileWriter::Create(
        folder_.File(fmt::format("{}.tokens", TextSplitName(split))),
        {static_cast<uint32_t>(summary_.vocabulary[0]),
         static_cast<uint32_t>(summary_.vocabulary[1])});
  }

  static Status Close(TokenFileWriter& writer, PreparedSplit* split) {
    TH_ASSIGN_OR_RETURN(const TokenHeader header, writer.Commit());
    for (size_t side = 0; side < kTextSides; ++side) {
      split->tokens[side] = static_cast<int64_t>(header.tokens[side]);
      split->longest[side] = header.longest[side];
    }
    return Status::Ok();
  }

  Status WriteTraining() {
    constexpr int64_t kBetween = 1024;
    PreparedSplit& split = *summary_.splits[0];
    std::array<std::vector<uint16_t>, kTextSides> to, tokens;
    for (size_t side = 0; side < kTextSides; ++side) {
      to[side] = pieces_[side].Translated(dictionaries_[side]);
    }
    TH_ASSIGN_OR_RETURN(TokenFileWriter writer, WriterOf(TextSplit::kTrain));
    PairSorter::Pair pair;
    for (int64_t done = 0;; ++done) {
      TH_ASSIGN_OR_RETURN(const bool more, sorter_.Next(&pair));
      if (!more) break;
      if (done % kBetween == 0) {
        TH_RETURN_IF_ERROR(Told("writing sentences",
                                static_cast<uint64_t>(done),
                                static_cast<uint64_t>(split.pairs)));
      }
      const std::span<const uint32_t> sides[] = {pair.source, pair.target};
      for (size_t side = 0; side < kTextSides; ++side) {
        tokens[side].clear();
        for (const uint32_t piece : sides[side]) {
          tokens[side].push_back(to[side][piece]);
          split.unknown[side] += tokens[side].back() == kUnknownToken;
        }
        tokens[side].push_back(kEndToken);
      }
      TH_RETURN_IF_ERROR(writer.Add(pair.line, tokens[0], tokens[1]));
    }
    return Close(writer, &split);
  }

  // In the order of the text.
  Status WriteOther(TextSplit which, const std::string& name, bool may_lack) {
    const Paths paths = PathsOf(name);
    if (may_lack) {
      TH_ASSIGN_OR_RETURN(const bool has_source, IsThere(paths[0]));
      TH_ASSIGN_OR_RETURN(const bool has_target, IsThere(paths[1]));
      if (!has_source && !has_target) return Status::Ok();
    }
    PreparedSplit& split =
        *(summary_.splits[static_cast<size_t>(which)] = PreparedSplit());
    TH_ASSIGN_OR_RETURN(TokenFileWriter writer, WriterOf(which));
    std::array<std::vector<uint16_t>, kTextSides> tokens;
    TH_RETURN_IF_ERROR(
        ForEachPair(paths, "dividing words", [&](const PairReader& reader) {
          ++split.lines;
          BySide words, lengths, unknown;
          for (size_t side = 0; side < kTextSides; ++side) {
            tokens[side].clear();
            words[side] =
                EachPieceOf(reader.line(side), [&](const std::string& piece) {
                  tokens[side].push_back(
                      static_cast<uint16_t>(dictionaries_[side].Find(piece)));
                });
            unknown[side] =
                std::ranges::count(tokens[side], uint16_t{kUnknownToken});
            tokens[side].push_back(kEndToken);
            lengths[side] = std::ssize(tokens[side]);
          }
          if (which != TextSplit::kTest && !Keeps(words, lengths, &split)) {
            return Status::Ok();
          }
          for (size_t side = 0; side < kTextSides; ++side) {
            if (lengths[side] > kLongestSentence) {
              return Status::Failed(fmt::format(
                  "{}:{}: the sentence has {} tokens, and may have {}",
                  paths[side], reader.number() + 1, lengths[side],
                  kLongestSentence));
            }
            split.unknown[side] += unknown[side];
          }
          ++split.pairs;
          return writer.Add(reader.number(), tokens[0], tokens[1]);
        }));
    return Close(writer, &split);
  }

  const PrepareOptions& options_;
  NewFolder folder_;
  PairSorter sorter_;
  PrepareSummary summary_;
  std::optional<Segmenter> segmenter_;
  std::string piece_;
  std::array<Pieces, kTextSides> pieces_;
  std::array<Dictionary, kTextSides> dictionaries_;
};

Status CheckOptions(const PrepareOptions& options) {
  for (const std::string* name :
       {&options.source, &options.target, &options.valid, &options.test}) {
    const bool may_lack = name == &options.test;
    if ((name->empty() && !may_lack) || name->find('/') != name->npos) {
      return Status::Usage(fmt::format(
          "'{}' cannot be part of a file's name, as languages and names of "
          "files are",
          *name));
    }
  }
  if (options.max_length < 2 || options.max_length > kLongestSentence) {
    return Status::Usage(
        fmt::format("PrepareOptions::max_length must be from 2 to {}, got {}",
                    kLongestSentence, options.max_length));
  }
  if (options.merges < 0) {
    return Status::Usage(fmt::format(
        "PrepareOptions::merges must be from 0 on, got {}", options.merges));
  }
  // Not only NaN is refused by the form of the comparison.
  if (options.ratio == 0 || options.ratio >= 1) return Status::Ok();
  return Status::Usage(
      fmt::format("PrepareOptions::ratio must be 0 or at least 1, got {:g}",
                  options.ratio));
}

}  // namespace
}  // namespace text

Result<PrepareSummary> PrepareText(const PrepareOptions& options) {
  TH_RETURN_IF_ERROR(text::CheckOptions(options));
  const std::string out = !options.out.empty()
                              ? options.out
                              : fmt::format("{}/prepared-{}-{}", options.dir,
                                            options.source, options.target);
  if (!IsFolder(options.dir)) {
    return Status::Failed(
        fmt::format("{} is no folder; text is in files train.LANGUAGE of one",
                    options.dir));
  }
  // Before anything is made.
  TH_RETURN_IF_ERROR(
      text::PairReader::Open(
          {fmt::format("{}/train.{}", options.dir, options.source),
           fmt::format("{}/train.{}", options.dir, options.target)})
          .status());
  TH_ASSIGN_OR_RETURN(text::NewFolder folder, text::NewFolder::Create(out));
  return text::Preparer(options, std::move(folder)).Run(out);
}

}  // namespace thimble
