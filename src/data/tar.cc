// SPDX-License-Identifier: Apache-2.0
#include "data/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/check.h"

namespace thimble {
namespace {

// A header's fields.
struct Field {
  size_t offset;
  size_t bytes;
};
constexpr Field kName = {0, 100};
constexpr Field kSize = {124, 12};
constexpr Field kChecksum = {148, 8};
constexpr size_t kType = 156;

using Header = std::span<const std::byte, 512>;

uint32_t ByteAt(Header header, size_t i) {
  return std::to_integer<uint32_t>(header[i]);
}

// Octal digits, with spaces before and a space or zero after them.
std::optional<uint64_t> Octal(Header header, Field field) {
  size_t i = field.offset;
  const size_t end = field.offset + field.bytes;
  while (i < end && ByteAt(header, i) == ' ') ++i;
  uint64_t value = 0;
  const size_t first = i;
  for (; i < end; ++i) {
    const uint32_t byte = ByteAt(header, i);
    if (byte == ' ' || byte == 0) break;
    if (byte < '0' || byte > '7') return std::nullopt;
    value = value << 3 | (byte - '0');  // 12 digits are 36 bits
  }
  if (i == first) return std::nullopt;
  return value;
}

bool ChecksumAgrees(Header header) {
  const std::optional<uint64_t> promised = Octal(header, kChecksum);
  uint64_t sum = 0;
  for (size_t i = 0; i < header.size(); ++i) {
    const bool inside =
        i >= kChecksum.offset && i < kChecksum.offset + kChecksum.bytes;
    sum += inside ? ' ' : ByteAt(header, i);
  }
  return promised == sum;
}

std::string_view NameOf(Header header) {
  const auto* name = reinterpret_cast<const char*>(&header[kName.offset]);
  return {name, strnlen(name, kName.bytes)};
}

}  // namespace

Status TarParser::Damaged(const char* why) const {
  return Status::Failed(fmt::format(
      "{} is damaged or no tar archive ({}); fetch it again", source_, why));
}

Status TarParser::TakeHeader() {
  filled_ = 0;
  const Header header(header_);
  if (std::all_of(header.begin(), header.end(),
                  [](std::byte b) { return b == std::byte{0}; })) {
    ended_ = true;
    return Status::Ok();
  }
  if (!ChecksumAgrees(header)) return Damaged("a header's checksum is wrong");
  const std::optional<uint64_t> size = Octal(header, kSize);
  if (!size) return Damaged("a header's size is no number");
  const uint32_t type = ByteAt(header, kType);
  visiting_ = type == '0' || type == 0 || type == '7';
  // Links, devices and folders have no bytes, whatever their size says. The
  // rest are extensions (long names, times) that nothing here depends on.
  const bool empty = type >= '1' && type <= '6';
  data_ = empty ? 0 : *size;
  padding_ = (kBlock - data_ % kBlock) % kBlock;
  if (!visiting_) return Status::Ok();
  TH_RETURN_IF_ERROR(visitor_->Begin(NameOf(header), data_));
  if (data_ > 0) return Status::Ok();
  visiting_ = false;
  return visitor_->End();
}

Status TarParser::Feed(std::span<const std::byte> piece) {
  while (!piece.empty() && !ended_) {
    if (data_ > 0) {
      const auto part = piece.first(
          static_cast<size_t>(std::min<uint64_t>(data_, piece.size())));
      piece = piece.subspan(part.size());
      data_ -= part.size();
      if (!visiting_) continue;
      TH_RETURN_IF_ERROR(visitor_->Data(part));
      if (data_ > 0) continue;
      visiting_ = false;
      TH_RETURN_IF_ERROR(visitor_->End());
    } else if (padding_ > 0) {
      const auto skipped =
          static_cast<size_t>(std::min<uint64_t>(padding_, piece.size()));
      piece = piece.subspan(skipped);
      padding_ -= skipped;
    } else {
      const size_t part = std::min(kBlock - filled_, piece.size());
      std::memcpy(header_.data() + filled_, piece.data(), part);
      piece = piece.subspan(part);
      filled_ += part;
      if (filled_ == kBlock) TH_RETURN_IF_ERROR(TakeHeader());
    }
  }
  return Status::Ok();
}

Status TarParser::Finish() const {
  // Some writers leave out the zeros at the end, or a last file's padding.
  if (data_ == 0 && filled_ == 0) return Status::Ok();
  return Damaged("it ends within a file");
}

}  // namespace thimble
