// SPDX-License-Identifier: Apache-2.0
#include "data/idx.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "thimble/text.h"

namespace thimble {
namespace {

// Third byte: unsigned bytes follow; fourth: the number of extents.
constexpr uint32_t kImagesMagic = 0x00000803;
constexpr uint32_t kLabelsMagic = 0x00000801;

// With these, count * height * width stays below 2^56. No image of the family
// is larger than a few hundred pixels.
constexpr uint32_t kMaxSide = 4096;

// A piece on the stack, for passes over a whole file.
constexpr size_t kIdxPiece = size_t{16} * 1024;

uint32_t BigEndian(std::span<const std::byte> header, size_t word) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    value = value << 8 | std::to_integer<uint32_t>(header[4 * word + i]);
  }
  return value;
}

Status BadIdx(const std::string& path, const std::string& why) {
  return Status::Failed(fmt::format("{}: {}; fetch the file again", path, why));
}

// Checks what both kinds of file share. `header` may be longer than one.
Status CheckHeader(const std::string& path, IdxKind kind,
                   std::span<const std::byte> header) {
  const bool images = kind == IdxKind::kImages;
  const uint32_t magic = images ? kImagesMagic : kLabelsMagic;
  const char* const what = images ? "images" : "labels";
  if (header.size() < IdxHeaderBytes(kind)) {
    return BadIdx(path,
                  fmt::format("not an IDX file of {}: it has {} bytes, less "
                              "than a header's {}",
                              what, header.size(), IdxHeaderBytes(kind)));
  }
  const uint32_t found = BigEndian(header, 0);
  if (found != magic) {
    return BadIdx(path, fmt::format("not an IDX file of {}: it starts with "
                                    "0x{:08x}, not with 0x{:08x}",
                                    what, found, magic));
  }
  if (BigEndian(header, 1) == 0) {
    return BadIdx(path, fmt::format("it holds no {}", what));
  }
  return Status::Ok();
}

Result<IdxImagesHeader> ParseImages(const std::string& path,
                                    std::span<const std::byte> header) {
  TH_RETURN_IF_ERROR(CheckHeader(path, IdxKind::kImages, header));
  const uint32_t height = BigEndian(header, 2);
  const uint32_t width = BigEndian(header, 3);
  if (height == 0 || width == 0 || height > kMaxSide || width > kMaxSide) {
    return BadIdx(path,
                  fmt::format("its images claim to be {} x {} pixels, but "
                              "sides must be 1 to {}",
                              height, width, kMaxSide));
  }
  return IdxImagesHeader{BigEndian(header, 1), height, width};
}

// Reads the header and compares the length that it promises with the file's.
template <size_t kBytes>
Result<std::array<std::byte, kBytes>> ReadHeader(const FileDescriptor& file,
                                                 IdxKind kind) {
  TH_ASSIGN_OR_RETURN(const FileStamp stamp, StampOf(file));
  std::array<std::byte, kBytes> header{};
  const auto there = std::span<std::byte>(header).first(
      static_cast<size_t>(std::min<uint64_t>(stamp.bytes, kBytes)));
  TH_RETURN_IF_ERROR(ReadFullyAt(file, there, 0));
  TH_ASSIGN_OR_RETURN(const uint64_t expected,
                      PromisedIdxBytes(file.path(), kind, there));
  if (stamp.bytes == expected) return header;
  return BadIdx(file.path(),
                fmt::format("its header promises {} bytes, but it has {}: it "
                            "is {}",
                            expected, stamp.bytes,
                            stamp.bytes < expected ? "cut short" : "too long"));
}

// Calls visit(piece) on all bytes from `offset` on, `left` of them.
template <typename Visit>
Status ForEachPiece(const FileDescriptor& file, uint64_t offset, uint64_t left,
                    Visit visit) {
  std::array<uint8_t, kIdxPiece> buffer;
  while (left > 0) {
    const auto piece = std::span<uint8_t>(buffer).first(
        static_cast<size_t>(std::min<uint64_t>(left, buffer.size())));
    TH_RETURN_IF_ERROR(
        ReadFullyAt(file, std::as_writable_bytes(piece), offset));
    TH_RETURN_IF_ERROR(visit(std::span<const uint8_t>(piece)));
    offset += piece.size();
    left -= piece.size();
  }
  return Status::Ok();
}

}  // namespace

size_t IdxHeaderBytes(IdxKind kind) {
  return kind == IdxKind::kImages ? IdxImagesHeader::kBytes
                                  : IdxLabelsHeader::kBytes;
}

Result<uint64_t> PromisedIdxBytes(const std::string& path, IdxKind kind,
                                  std::span<const std::byte> header) {
  if (kind == IdxKind::kLabels) {
    TH_RETURN_IF_ERROR(CheckHeader(path, kind, header));
    return IdxLabelsHeader::kBytes + BigEndian(header, 1);
  }
  TH_ASSIGN_OR_RETURN(const IdxImagesHeader images, ParseImages(path, header));
  return IdxImagesHeader::kBytes +
         static_cast<uint64_t>(images.count * images.height * images.width);
}

Result<IdxImagesHeader> ReadIdxImagesHeader(const FileDescriptor& file) {
  TH_ASSIGN_OR_RETURN(const auto header, ReadHeader<IdxImagesHeader::kBytes>(
                                             file, IdxKind::kImages));
  return ParseImages(file.path(), header);
}

Result<IdxLabelsHeader> ReadIdxLabelsHeader(const FileDescriptor& file) {
  TH_ASSIGN_OR_RETURN(const auto header, ReadHeader<IdxLabelsHeader::kBytes>(
                                             file, IdxKind::kLabels));
  return IdxLabelsHeader{BigEndian(header, 1)};
}

IdxSplit::IdxSplit(FileDescriptor images, FileDescriptor labels,
                   const IdxImagesHeader& header)
    : images_(std::move(images)), labels_(std::move(labels)), header_(header) {}

Result<IdxSplit> IdxSplit::Open(const std::string& images_path,
                                const std::string& labels_path) {
  TH_ASSIGN_OR_RETURN(FileDescriptor images, OpenForReading(images_path));
  TH_ASSIGN_OR_RETURN(FileDescriptor labels, OpenForReading(labels_path));
  TH_ASSIGN_OR_RETURN(const IdxImagesHeader header,
                      ReadIdxImagesHeader(images));
  TH_ASSIGN_OR_RETURN(const IdxLabelsHeader labels_header,
                      ReadIdxLabelsHeader(labels));
  if (header.count != labels_header.count) {
    return Status::Failed(
        fmt::format("{} holds {}, but {} holds {}; fetch both again",
                    images_path, Counted(header.count, "image"), labels_path,
                    Counted(labels_header.count, "label")));
  }
  return IdxSplit(std::move(images), std::move(labels), header);
}

Status IdxSplit::CheckLabel(int64_t index, uint8_t label) const {
  if (label < kIdxClasses) return Status::Ok();
  return BadIdx(labels_.path(),
                fmt::format("label {} of example {} is out of range 0..{}",
                            label, index, kIdxClasses - 1));
}

Status IdxSplit::Read(int64_t index, std::span<uint8_t> image,
                      int32_t* label) const {
  TH_CHECK(index >= 0 && index < count());
  TH_CHECK(image.size() == static_cast<size_t>(height() * width()));
  const auto record = static_cast<uint64_t>(index);
  TH_RETURN_IF_ERROR(
      ReadFullyAt(images_, std::as_writable_bytes(image),
                  IdxImagesHeader::kBytes + record * image.size()));
  uint8_t byte = 0;
  TH_RETURN_IF_ERROR(ReadFullyAt(labels_,
                                 std::as_writable_bytes(std::span(&byte, 1)),
                                 IdxLabelsHeader::kBytes + record));
  TH_RETURN_IF_ERROR(CheckLabel(index, byte));
  *label = byte;
  return Status::Ok();
}

Status IdxSplit::CheckLabels(Sha256* digest) const {
  int64_t index = 0;
  return ForEachPiece(labels_, IdxLabelsHeader::kBytes,
                      static_cast<uint64_t>(count()),
                      [&](std::span<const uint8_t> piece) {
                        for (uint8_t label : piece) {
                          TH_RETURN_IF_ERROR(CheckLabel(index++, label));
                        }
                        digest->Update(std::as_bytes(piece));
                        return Status::Ok();
                      });
}

Status IdxSplit::Measure(PixelStatistics* statistics) const {
  return ForEachPiece(images_, IdxImagesHeader::kBytes,
                      static_cast<uint64_t>(count() * height() * width()),
                      [&](std::span<const uint8_t> piece) {
                        statistics->Add(piece);
                        return Status::Ok();
                      });
}

}  // namespace thimble
