// SPDX-License-Identifier: Apache-2.0
#include "thimble/text_data.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/files.h"
#include "base/sha256.h"
#include "text/meaning.h"
#include "text/token_file.h"

namespace thimble {
namespace {

constexpr size_t kFingerprintDigits = 16;

size_t IndexOf(TextSplit split) { return static_cast<size_t>(split); }
size_t IndexOf(TextSide side) { return static_cast<size_t>(side); }

}  // namespace

const char* TextSplitName(TextSplit split) {
  constexpr const char* kNames[kTextSplits] = {"train", "valid", "test"};
  return kNames[IndexOf(split)];
}

TextRecord TextRecord::At(std::span<const std::byte> bytes) {
  TH_CHECK(bytes.size() >= kHeadBytes);
  TextRecord record;
  std::memcpy(&record.source, &bytes[0], sizeof(record.source));
  std::memcpy(&record.target, &bytes[2], sizeof(record.target));
  std::memcpy(&record.line, &bytes[4], sizeof(record.line));
  return record;
}

struct TextData::Impl {
  std::string name;
  std::string fingerprint;
  std::string meaning;
  std::array<std::optional<text::TokenFile>, kTextSplits> splits;

  Status ReadMeaning() {
    TH_ASSIGN_OR_RETURN(const text::Meaning read, text::ReadMeaning(name));
    for (size_t side = 0; side < kTextSides; ++side) {
      const int64_t expected = HeaderOf(TextSplit::kTrain).vocabulary[side];
      if (read.vocabulary[side] == expected) continue;
      return Status::Failed(fmt::format(
          "{}/{} has {} tokens, and train.tokens beside it was made with {}; "
          "prepare the text again",
          name, text::kDictionaryNames[side], read.vocabulary[side], expected));
    }
    meaning = read.digest;
    return Status::Ok();
  }

  // Of a split that is missing, that of no pairs.
  text::TokenHeader HeaderOf(TextSplit split) const {
    const auto& file = splits[IndexOf(split)];
    return file.has_value() ? file->header() : text::TokenHeader();
  }
};

Result<std::unique_ptr<TextData>> TextData::Open(const std::string& dir) {
  auto impl = std::make_unique<Impl>();
  impl->name = dir;
  if (!IsFolder(dir)) {
    return Status::Failed(
        fmt::format("{} is no folder; text is prepared by PrepareText, and "
                    " the folder that it writes is given here",
                    dir));
  }
  Sha256 sha;
  for (size_t i = 0; i < kTextSplits; ++i) {
    const auto split = static_cast<TextSplit>(i);
    const std::string path =
        fmt::format("{}/{}.tokens", dir, TextSplitName(split));
    TH_ASSIGN_OR_RETURN(const bool is_there, IsThere(path));
    if (!is_there && split != TextSplit::kTrain) continue;
    if (!is_there) {
      return Status::Failed(
          fmt::format("{} has no file train.tokens; PrepareText makes it of "
                      "text",
                      dir));
    }
    TH_ASSIGN_OR_RETURN(text::TokenFile file, text::TokenFile::Open(path));
    TH_RETURN_IF_ERROR(file.Check(/*sorted=*/split == TextSplit::kTrain));
    const text::TokenHeader& header = file.header();
    if (impl->splits[0].has_value() &&
        impl->splits[0]->header().vocabulary != header.vocabulary) {
      return Status::Failed(fmt::format(
          "{} was not prepared together with train.tokens beside it: their "
          "vocabularies differ; prepare the text again",
          path));
    }
    sha.Update(fmt::format("{} {} {} {}\n", TextSplitName(split),
                           header.vocabulary[0], header.vocabulary[1],
                           Hex(header.sha256)));
    impl->splits[i] = std::move(file);
  }
  TH_RETURN_IF_ERROR(impl->ReadMeaning());
  impl->fingerprint = Hex(sha.Final()).substr(0, kFingerprintDigits);
  return std::unique_ptr<TextData>(new TextData(std::move(impl)));
}

TextData::TextData(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TextData::~TextData() = default;

const std::string& TextData::name() const { return impl_->name; }
const std::string& TextData::fingerprint() const { return impl_->fingerprint; }
const std::string& TextData::meaning() const { return impl_->meaning; }

int64_t TextData::vocabulary(TextSide side) const {
  return impl_->HeaderOf(TextSplit::kTrain).vocabulary[IndexOf(side)];
}

bool TextData::has(TextSplit split) const {
  return impl_->splits[IndexOf(split)].has_value();
}

int64_t TextData::pairs(TextSplit split) const {
  return static_cast<int64_t>(impl_->HeaderOf(split).pairs);
}

int64_t TextData::tokens(TextSplit split, TextSide side) const {
  return static_cast<int64_t>(impl_->HeaderOf(split).tokens[IndexOf(side)]);
}

int64_t TextData::longest(TextSplit split, TextSide side) const {
  return impl_->HeaderOf(split).longest[IndexOf(side)];
}

uint64_t TextData::bytes(TextSplit split) const {
  return impl_->HeaderOf(split).body_bytes();
}

Status TextData::Read(TextSplit split, uint64_t offset,
                      std::span<std::byte> buffer) const {
  TH_CHECK(has(split));
  return impl_->splits[IndexOf(split)]->Read(offset, buffer);
}

}  // namespace thimble
