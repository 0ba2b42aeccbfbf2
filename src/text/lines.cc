// SPDX-License-Identifier: Apache-2.0
#include "text/lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "thimble/size.h"

namespace thimble::text {
namespace {

constexpr size_t kPiece = size_t{1} << 16;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

Result<LineReader> LineReader::Open(const std::string& path) {
  TH_ASSIGN_OR_RETURN(FileDescriptor file, OpenForReading(path));
  TH_ASSIGN_OR_RETURN(const FileStamp stamp, StampOf(file));
  return LineReader(std::move(file), stamp.bytes);
}

LineReader::LineReader(FileDescriptor file, uint64_t bytes)
    : file_(std::move(file)), bytes_(bytes), buffer_(kPiece) {}

Status LineReader::Bad(const std::string& what) const {
  return Status::Failed(fmt::format("{}:{}: {}", path(), number_, what));
}

Status LineReader::TooLong() const {
  return Bad(fmt::format(
      "the line is longer than {} bytes; text has a sentence on each line",
      kLongestLine));
}

Status LineReader::Fill() {
  std::memmove(buffer_.data(), buffer_.data() + at_, filled_ - at_);
  filled_ -= at_;
  at_ = 0;
  if (filled_ == buffer_.size()) buffer_.resize(2 * buffer_.size());
  const auto room = std::as_writable_bytes(std::span(buffer_)).subspan(filled_);
  TH_ASSIGN_OR_RETURN(const size_t got, ReadSomeAt(file_, room, offset_));
  filled_ += got;
  offset_ += got;
  return Status::Ok();
}

Result<bool> LineReader::Next(std::string_view* line) {
  ++number_;
  size_t searched = 0;
  while (true) {
    const std::string_view rest(buffer_.data() + at_, filled_ - at_);
    const size_t end = rest.find('\n', searched);
    const bool is_last = end == rest.npos && offset_ >= bytes_;
    if (end == rest.npos && !is_last) {
      if (rest.size() > kLongestLine) return TooLong();
      searched = rest.size();
      const uint64_t before = offset_;
      TH_RETURN_IF_ERROR(Fill());
      // Became shorter meanwhile.
      if (offset_ == before) bytes_ = offset_;
      continue;
    }
    if (is_last && rest.empty()) {
      --number_;
      return false;
    }
    *line = rest.substr(0, end);
    if (line->size() > kLongestLine) return TooLong();
    at_ += is_last ? rest.size() : end + 1;
    if (number_ == 1 && line->starts_with(kByteOrderMark)) {
      line->remove_prefix(kByteOrderMark.size());
    }
    if (line->ends_with('\r')) line->remove_suffix(1);
    TH_RETURN_IF_ERROR(Check(*line));
    return true;
  }
}

Status LineReader::Check(std::string_view line) const {
  if (line.find('\0') != line.npos) {
    return Bad("the line has a byte 0; this is no text, or not UTF-8");
  }
  if (IsUtf8(line)) return Status::Ok();
  size_t good = 0;
  while (const size_t bytes = Utf8Bytes(line.substr(good))) good += bytes;
  return Bad(
      fmt::format("byte {} of the line is no UTF-8; convert the text (iconv), "
                  "or unpack it if it is compressed",
                  good + 1));
}

Result<std::string> ReadSmallFile(const std::string& path) {
  constexpr uint64_t kMost = uint64_t{64} << 20;
  TH_ASSIGN_OR_RETURN(const FileDescriptor file, OpenForReading(path));
  TH_ASSIGN_OR_RETURN(const FileStamp stamp, StampOf(file));
  if (stamp.bytes > kMost) {
    return Status::Failed(
        fmt::format("{} has {}, more than the {} that it may have", path,
                    FormatBytes(stamp.bytes), FormatBytes(kMost)));
  }
  std::string text(static_cast<size_t>(stamp.bytes), '\0');
  TH_RETURN_IF_ERROR(
      ReadFullyAt(file, std::as_writable_bytes(std::span(text)), 0));
  return text;
}

}  // namespace thimble::text
