// SPDX-License-Identifier: Apache-2.0
#include "text/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace thimble::text {
namespace {

static_assert(std::endian::native == std::endian::little,
              "token files are little endian, and are copied as they are");

constexpr char kMagic[4] = {'T', 'H', 'T', 'K'};
constexpr uint32_t kVersion = 1;
constexpr size_t kPending = size_t{1} << 16;  // bytes until they are written

using HeaderBytes = std::array<std::byte, kTokenHeaderBytes>;

// Fields of the header one after the other, to write or to read.
class Fields {
 public:
  explicit Fields(HeaderBytes* bytes) : bytes_(bytes) {}
  template <typename T>
  void Put(const T& value) {
    std::memcpy(bytes_->data() + at_, &value, sizeof(T));
    at_ += sizeof(T);
  }
  template <typename T>
  void Get(T* value) {
    std::memcpy(value, bytes_->data() + at_, sizeof(T));
    at_ += sizeof(T);
  }

 private:
  HeaderBytes* bytes_;
  size_t at_ = 0;
};

HeaderBytes Packed(const TokenHeader& header) {
  HeaderBytes bytes = {};
  Fields fields(&bytes);
  fields.Put(kMagic);
  fields.Put(kVersion);
  fields.Put(header.pairs);
  fields.Put(header.tokens);
  fields.Put(header.longest);
  fields.Put(header.vocabulary);
  fields.Put(header.sha256);
  return bytes;
}

Status Damaged(const std::string& path, const std::string& what) {
  return Status::Failed(
      fmt::format("{} is damaged: {}; prepare the text again with PrepareText",
                  path, what));
}

// Whether counts can be those of a file: no product of them overflows.
bool IsPlausible(const TokenHeader& header) {
  constexpr uint64_t kMost = uint64_t{1} << 48;
  for (size_t side = 0; side < kTextSides; ++side) {
    if (header.tokens[side] > kMost ||
        header.longest[side] > kLongestSentence ||
        header.vocabulary[side] < static_cast<uint32_t>(kFirstWord) ||
        header.vocabulary[side] > static_cast<uint32_t>(kMostTokens)) {
      return false;
    }
  }
  return header.pairs <= uint64_t{1} << 32;
}

Result<TokenHeader> Unpacked(const std::string& path, HeaderBytes& bytes) {
  char magic[4];
  uint32_t version = 0;
  TokenHeader header;
  Fields fields(&bytes);
  fields.Get(&magic);
  fields.Get(&version);
  fields.Get(&header.pairs);
  fields.Get(&header.tokens);
  fields.Get(&header.longest);
  fields.Get(&header.vocabulary);
  fields.Get(&header.sha256);
  if (std::memcmp(magic, kMagic, sizeof(magic)) != 0) {
    return Status::Failed(
        fmt::format("{} is no token file; PrepareText makes them of "
                    "text",
                    path));
  }
  if (version != kVersion) {
    return Status::Failed(fmt::format(
        "{} is a token file of version {}, and this program reads version {}; "
        "prepare the text again with PrepareText",
        path, version, kVersion));
  }
  if (!IsPlausible(header) || Packed(header) != bytes) {
    return Damaged(path, "its header makes no sense");
  }
  return header;
}

// Whether `tokens` are a sentence: all known, the end at the end alone.
bool IsSentence(std::span<const std::byte> bytes, uint32_t vocabulary) {
  for (size_t i = 0; i < bytes.size(); i += 2) {
    uint16_t token;
    std::memcpy(&token, &bytes[i], sizeof(token));
    const bool is_last = i + 2 == bytes.size();
    if (token >= vocabulary || (token == kEndToken) != is_last) return false;
  }
  return !bytes.empty();
}

// Checks records as they come, in pieces.
class Checker {
 public:
  Checker(const TokenFile& file, bool sorted) : file_(file), sorted_(sorted) {}

  // How many bytes of `bytes` were whole records.
  Result<size_t> Take(std::span<const std::byte> bytes) {
    size_t done = 0;
    while (bytes.size() - done >= TextRecord::kHeadBytes) {
      const auto rest = bytes.subspan(done);
      const TextRecord record = TextRecord::At(rest);
      if (rest.size() < record.bytes()) break;
      TH_RETURN_IF_ERROR(Check(record, rest));
      done += record.bytes();
    }
    sha_.Update(bytes.first(done));
    return done;
  }

  Status Finish() {
    found_.vocabulary = file_.header().vocabulary;
    found_.sha256 = sha_.Final();
    if (found_ == file_.header()) return Status::Ok();
    return Damaged(file_.path(), "its records are not those of its header");
  }

 private:
  Status Check(const TextRecord& record, std::span<const std::byte> bytes) {
    const size_t source = 2 * size_t{record.source};
    const size_t target = 2 * size_t{record.target};
    const auto& vocabulary = file_.header().vocabulary;
    const auto body = bytes.subspan(TextRecord::kHeadBytes);
    if (!IsSentence(body.first(source), vocabulary[0]) ||
        !IsSentence(body.subspan(source, target), vocabulary[1])) {
      return Damaged(file_.path(), fmt::format("record {} holds no sentences",
                                               found_.pairs + 1));
    }
    if (sorted_ && std::tie(record.source, record.target) <
                       std::tie(last_.source, last_.target)) {
      return Damaged(file_.path(),
                     fmt::format("record {} is not in the order of lengths",
                                 found_.pairs + 1));
    }
    last_ = record;
    ++found_.pairs;
    const uint16_t lengths[] = {record.source, record.target};
    for (size_t side = 0; side < kTextSides; ++side) {
      found_.tokens[side] += lengths[side];
      found_.longest[side] =
          std::max(found_.longest[side], uint32_t{lengths[side]});
    }
    return Status::Ok();
  }

  const TokenFile& file_;
  bool sorted_;
  TextRecord last_;
  TokenHeader found_;
  Sha256 sha_;
};

}  // namespace

Result<TokenFileWriter> TokenFileWriter::Create(
    const std::string& path, const std::array<uint32_t, kTextSides>& sizes) {
  TH_ASSIGN_OR_RETURN(AtomicFileWriter file, AtomicFileWriter::Create(path));
  TokenFileWriter writer(std::move(file), sizes);
  TH_RETURN_IF_ERROR(writer.file_.Write(Packed(writer.header_)));
  return writer;
}

TokenFileWriter::TokenFileWriter(AtomicFileWriter file,
                                 const std::array<uint32_t, kTextSides>& sizes)
    : file_(std::move(file)) {
  header_.vocabulary = sizes;
  TH_CHECK(IsPlausible(header_));
}

Status TokenFileWriter::Add(uint32_t line, std::span<const uint16_t> source,
                            std::span<const uint16_t> target) {
  TextRecord record;
  record.source = static_cast<uint16_t>(source.size());
  record.target = static_cast<uint16_t>(target.size());
  record.line = line;
  const auto put = [this](const void* from, size_t bytes) {
    const auto* data = static_cast<const std::byte*>(from);
    pending_.insert(pending_.end(), data, data + bytes);
  };
  put(&record.source, sizeof(record.source));
  put(&record.target, sizeof(record.target));
  put(&record.line, sizeof(record.line));
  ++header_.pairs;
  const std::span<const uint16_t> sides[] = {source, target};
  for (size_t side = 0; side < kTextSides; ++side) {
    const auto bytes = std::as_bytes(sides[side]);
    TH_CHECK(std::ssize(sides[side]) <= kLongestSentence &&
             IsSentence(bytes, header_.vocabulary[side]));
    put(bytes.data(), bytes.size());
    header_.tokens[side] += sides[side].size();
    header_.longest[side] = std::max(header_.longest[side],
                                     static_cast<uint32_t>(sides[side].size()));
  }
  return pending_.size() < kPending ? Status::Ok() : Flush();
}

Status TokenFileWriter::Flush() {
  sha_.Update(pending_);
  TH_RETURN_IF_ERROR(file_.Write(pending_));
  pending_.clear();
  return Status::Ok();
}

Result<TokenHeader> TokenFileWriter::Commit() {
  TH_RETURN_IF_ERROR(Flush());
  header_.sha256 = sha_.Final();
  TH_RETURN_IF_ERROR(file_.Rewrite(Packed(header_), 0));
  TH_RETURN_IF_ERROR(file_.Commit());
  return header_;
}

Result<TokenFile> TokenFile::Open(const std::string& path) {
  TH_ASSIGN_OR_RETURN(FileDescriptor file, OpenForReading(path));
  TH_ASSIGN_OR_RETURN(const FileStamp stamp, StampOf(file));
  HeaderBytes bytes;
  if (stamp.bytes < bytes.size()) {
    return Status::Failed(fmt::format(
        "{} has {} bytes, fewer than a token file's header of {}; prepare the "
        "text again with PrepareText",
        path, stamp.bytes, bytes.size()));
  }
  TH_RETURN_IF_ERROR(ReadFullyAt(file, bytes, 0));
  TH_ASSIGN_OR_RETURN(const TokenHeader header, Unpacked(path, bytes));
  const uint64_t expected = kTokenHeaderBytes + header.body_bytes();
  if (stamp.bytes != expected) {
    return Damaged(path, fmt::format("it has {} bytes, and its header says {}",
                                     stamp.bytes, expected));
  }
  return TokenFile(std::move(file), header);
}

Status TokenFile::Check(bool sorted) const {
  // Room for the longest record there can be.
  constexpr uint64_t kRoom =
      TextRecord::kHeadBytes + 4 * static_cast<uint64_t>(kLongestSentence);
  std::vector<std::byte> buffer(std::min(kRoom, header_.body_bytes()));
  Checker checker(*this, sorted);
  uint64_t offset = 0;
  while (offset < header_.body_bytes()) {
    const auto piece = std::span(buffer).first(
        std::min<uint64_t>(buffer.size(), header_.body_bytes() - offset));
    TH_RETURN_IF_ERROR(Read(offset, piece));
    TH_ASSIGN_OR_RETURN(const size_t done, checker.Take(piece));
    if (done == 0) return Damaged(path(), "its last record is cut off");
    offset += done;
  }
  return checker.Finish();
}

}  // namespace thimble::text
