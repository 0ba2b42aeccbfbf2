// SPDX-License-Identifier: Apache-2.0
//
// Writing, and reading what was written with a seal: header and tensors pass
// through, none of them is held.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/function_ref.h"
#include "base/sha256.h"
#include "store/safetensors.h"
#include "store/safetensors_header.h"

namespace thimble {
namespace {

// In place of the digits while they are computed.
constexpr std::string_view kZeros =
    "0000000000000000000000000000000000000000000000000000000000000000";
constexpr size_t kDigits = kZeros.size();
constexpr size_t kSealPiece = size_t{64} << 10;

std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The JSON text of the header, padding included.
Status FormatHeader(const SafetensorsStream& stream, std::string_view seal,
                    TextSink sink) {
  uint64_t length = 0;
  const auto count = [&](std::string_view piece) {
    length += piece.size();
    return sink(piece);
  };
  TH_RETURN_IF_ERROR(FormatMetadata(stream.metadata, seal, count));
  uint64_t begin = 0;
  for (size_t i = 0; i < stream.count; ++i) {
    const bool is_first = length == 1;  // behind the bare "{"
    TH_RETURN_IF_ERROR(FormatEntry(is_first, stream.info(i), &begin, count));
  }
  TH_RETURN_IF_ERROR(count("}"));
  return sink(FormatPadding(length));
}

// Whether so many bytes are what the tensor takes.
Status CheckSize(const TensorInfo& info, uint64_t given) {
  TH_ASSIGN_OR_RETURN(const uint64_t bytes, TensorBytes(info));
  if (bytes == given) return Status::Ok();
  return Status::Usage(
      fmt::format("tensor '{}' takes {} bytes by its shape, but {} were given",
                  info.name, bytes, given));
}

// The whole file. `header_bytes` is what FormatHeader gives.
Status Emit(const SafetensorsStream& stream, std::string_view seal,
            uint64_t header_bytes, ByteSink sink) {
  std::array<std::byte, kLengthBytes> length;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length[i] = static_cast<std::byte>(header_bytes >> (8 * i));
  }
  TH_RETURN_IF_ERROR(sink(length));
  TH_RETURN_IF_ERROR(FormatHeader(stream, seal, [&](std::string_view piece) {
    return sink(AsBytes(piece));
  }));
  for (size_t i = 0; i < stream.count; ++i) {
    uint64_t given = 0;
    const auto count = [&](std::span<const std::byte> piece) {
      given += piece.size();
      return sink(piece);
    };
    TH_RETURN_IF_ERROR(stream.bytes(i, count));
    TH_RETURN_IF_ERROR(CheckSize(stream.info(i), given));
  }
  return Status::Ok();
}

Status Damaged(const std::string& path, const char* why) {
  return Status::Failed(
      fmt::format("{} is damaged: {}; use a good copy", path, why));
}

// Settings and figures of a run take little, but for names of sparse weights in
// networks of thousands of layers.
Result<LeadingMetadata> ReadLeadingMetadata(const FileDescriptor& file,
                                            uint64_t header) {
  for (uint64_t bytes = kSealPiece;; bytes *= 4) {
    std::string text(static_cast<size_t>(std::min(header, bytes)), '\0');
    TH_RETURN_IF_ERROR(ReadFullyAt(
        file, std::as_writable_bytes(std::span(text)), kLengthBytes));
    auto leading = ParseLeadingMetadata(text);
    if (leading.ok() || bytes >= header) return leading;
  }
}

}  // namespace

Status WriteSafetensors(AtomicFileWriter writer,
                        const SafetensorsContents& contents, Seal seal) {
  for (size_t i = 0; i < contents.count; ++i) {
    const TensorView tensor = contents.tensor(i);
    TH_RETURN_IF_ERROR(CheckSize(tensor.info, tensor.bytes.size()));
  }
  const auto info = [&](size_t i) { return contents.tensor(i).info; };
  const auto bytes = [&](size_t i, ByteSink sink) {
    return sink(contents.tensor(i).bytes);
  };
  return StreamSafetensors(std::move(writer),
                           {contents.count, info, bytes, contents.metadata},
                           seal);
}

Status StreamSafetensors(AtomicFileWriter writer,
                         const SafetensorsStream& stream, Seal seal) {
  TH_RETURN_IF_ERROR(CheckNames(stream.count, stream.info));
  std::string digits(seal == Seal::kSha256 ? kZeros : "");
  uint64_t header_bytes = 0;
  TH_RETURN_IF_ERROR(FormatHeader(stream, digits, [&](std::string_view piece) {
    header_bytes += piece.size();
    return Status::Ok();
  }));
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    return Status::Failed(
        fmt::format("the header would take {} bytes; {} are the limit",
                    header_bytes, kMaxSafetensorsHeaderBytes));
  }
  if (seal == Seal::kSha256) {
    Sha256 sum;
    TH_RETURN_IF_ERROR(Emit(stream, digits, header_bytes,
                            [&](std::span<const std::byte> piece) {
                              sum.Update(piece);
                              return Status::Ok();
                            }));
    digits = Hex(sum.Final());
  }
  TH_RETURN_IF_ERROR(Emit(
      stream, digits, header_bytes,
      [&](std::span<const std::byte> piece) { return writer.Write(piece); }));
  return writer.Commit();
}

Status CheckSeal(const FileDescriptor& file) {
  const std::string prefix = SealPrefix();
  const uint64_t place = kLengthBytes + prefix.size();
  const auto piece = std::make_unique<std::array<std::byte, kSealPiece>>();
  std::string digits;
  Sha256 sum;
  for (uint64_t offset = 0;;) {
    TH_ASSIGN_OR_RETURN(const size_t got, ReadSomeAt(file, *piece, offset));
    if (got == 0) break;
    const auto bytes = std::span(*piece).first(got);
    // A read may be short; the digits are at the very beginning.
    if (offset == 0) {
      if (got < place + kDigits) return Damaged(file.path(), "it is too short");
      auto* const text = reinterpret_cast<char*>(bytes.data());
      if (std::string_view(text + kLengthBytes, prefix.size()) != prefix) {
        return Damaged(file.path(),
                       "there is no checksum in its place (earlier "
                       "versions wrote none)");
      }
      digits.assign(text + place, kDigits);
      std::ranges::copy(kZeros, text + place);
    }
    sum.Update(bytes);
    offset += got;
  }
  if (digits.empty()) return Damaged(file.path(), "it is empty");
  if (Hex(sum.Final()) == digits) return Status::Ok();
  return Damaged(file.path(), "its checksum does not fit");
}

SealedSafetensors::SealedSafetensors(FileDescriptor file,
                                     SafetensorsMetadata metadata,
                                     uint64_t entries_begin,
                                     uint64_t payload_begin)
    : file_(std::move(file)),
      metadata_(std::move(metadata)),
      entries_begin_(entries_begin),
      payload_begin_(payload_begin) {}

Result<SealedSafetensors> SealedSafetensors::Open(const std::string& path) {
  TH_ASSIGN_OR_RETURN(FileDescriptor file, OpenForReading(path));
  TH_RETURN_IF_ERROR(CheckSeal(file));
  TH_ASSIGN_OR_RETURN(const uint64_t header, ReadHeaderLength(file));
  auto leading = ReadLeadingMetadata(file, header);
  if (!leading.ok()) {
    return Damaged(path, leading.status().message().c_str());
  }
  leading->metadata.erase(kSafetensorsSeal);
  return SealedSafetensors(std::move(file), std::move(leading->metadata),
                           kLengthBytes + leading->end, kLengthBytes + header);
}

Status SealedSafetensors::ReadTensors(
    size_t count, FunctionRef<Target(size_t)> target) const {
  uint64_t at = entries_begin_;
  uint64_t begin = 0;
  std::string found;
  const auto compare = [&](std::string_view expected) {
    found.resize(std::min<uint64_t>(expected.size(), payload_begin_ - at));
    TH_RETURN_IF_ERROR(
        ReadFullyAt(file_, std::as_writable_bytes(std::span(found)), at));
    at += found.size();
    return found == expected ? Status::Ok() : Status::Failed("");
  };
  for (size_t i = 0; i < count; ++i) {
    const TensorInfo info = target(i).info;
    if (FormatEntry(false, info, &begin, compare).ok()) continue;
    return Status::Failed(fmt::format(
        "{}: tensor '{}' is missing or not {} [{}]; the file belongs to "
        "another model",
        path(), info.name, info.dtype, fmt::join(info.shape, ", ")));
  }
  if (!compare("}").ok()) {
    return Status::Failed(fmt::format(
        "{} has more tensors than this model; it belongs to another one",
        path()));
  }
  at = payload_begin_;
  for (size_t i = 0; i < count; ++i) {
    const std::span<std::byte> bytes = target(i).bytes;
    TH_RETURN_IF_ERROR(ReadFullyAt(file_, bytes, at));
    at += bytes.size();
  }
  return Status::Ok();
}

}  // namespace thimble
