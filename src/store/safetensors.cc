// SPDX-License-Identifier: Apache-2.0
#include "store/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "store/safetensors_header.h"

namespace thimble {
namespace {

constexpr uint64_t kLengthBytes = 8;

Status Foreign(const std::string& path, const std::string& why) {
  return Status::Failed(fmt::format(
      "{} is not a usable safetensors file: {}; it is damaged or of another "
      "kind, use a good copy",
      path, why));
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::string path, AtomicFileWriter writer,
                                     uint64_t bytes)
    : path_(std::move(path)), writer_(std::move(writer)), bytes_left_(bytes) {}

Result<SafetensorsWriter> SafetensorsWriter::Create(
    const std::string& path, std::span<const TensorInfo> tensors,
    const SafetensorsMetadata& metadata) {
  uint64_t bytes = 0;
  TH_ASSIGN_OR_RETURN(const std::string header,
                      FormatSafetensorsHeader(tensors, metadata, &bytes));
  TH_ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::Create(path));
  TH_RETURN_IF_ERROR(writer.Write(std::as_bytes(std::span(header))));
  return SafetensorsWriter(path, std::move(writer), bytes);
}

Status SafetensorsWriter::Append(std::span<const std::byte> bytes) {
  if (bytes.size() > bytes_left_) {
    return Status::Usage(fmt::format(
        "{} bytes for {} are more than the {} still expected by the "
        "declared shapes",
        bytes.size(), path_, bytes_left_));
  }
  TH_RETURN_IF_ERROR(writer_.Write(bytes));
  bytes_left_ -= bytes.size();
  return Status::Ok();
}

Status SafetensorsWriter::Commit() {
  if (bytes_left_ != 0) {
    return Status::Usage(fmt::format(
        "{} still lacks {} bytes of the declared shapes", path_, bytes_left_));
  }
  return writer_.Commit();
}

Status WriteSafetensors(const std::string& path,
                        std::span<const TensorView> tensors,
                        const SafetensorsMetadata& metadata) {
  std::vector<TensorInfo> infos;
  infos.reserve(tensors.size());
  for (const TensorView& tensor : tensors) {
    TH_ASSIGN_OR_RETURN(const uint64_t bytes, TensorBytes(tensor.info));
    if (bytes != tensor.bytes.size()) {
      return Status::Usage(fmt::format(
          "tensor '{}' takes {} bytes by its shape, but {} were given",
          tensor.info.name, bytes, tensor.bytes.size()));
    }
    infos.push_back(tensor.info);
  }
  TH_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                      SafetensorsWriter::Create(path, infos, metadata));
  for (const TensorView& tensor : tensors) {
    TH_RETURN_IF_ERROR(writer.Append(tensor.bytes));
  }
  return writer.Commit();
}

SafetensorsReader::SafetensorsReader(FileDescriptor file,
                                     std::vector<Tensor> tensors,
                                     SafetensorsMetadata metadata)
    : file_(std::move(file)),
      tensors_(std::move(tensors)),
      metadata_(std::move(metadata)) {}

Result<SafetensorsReader> SafetensorsReader::Open(const std::string& path) {
  TH_ASSIGN_OR_RETURN(FileDescriptor file, OpenForReading(path));
  TH_ASSIGN_OR_RETURN(const FileStamp stamp, StampOf(file));
  if (stamp.bytes < kLengthBytes) {
    return Foreign(path, fmt::format("it has {} bytes", stamp.bytes));
  }
  std::array<std::byte, kLengthBytes> prefix;
  TH_RETURN_IF_ERROR(ReadFullyAt(file, prefix, 0));
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | std::to_integer<uint64_t>(prefix[i]);
  }
  if (length > kMaxSafetensorsHeaderBytes ||
      length > stamp.bytes - kLengthBytes) {
    return Foreign(path,
                   fmt::format("it claims a header of {} bytes, of {} in all",
                               length, stamp.bytes));
  }
  std::string json(static_cast<size_t>(length), '\0');
  TH_RETURN_IF_ERROR(
      ReadFullyAt(file, std::as_writable_bytes(std::span(json)), kLengthBytes));
  const uint64_t payload = kLengthBytes + length;
  auto header = ParseSafetensorsHeader(json, stamp.bytes - payload);
  if (!header.ok()) return Foreign(path, header.status().message());
  for (Tensor& tensor : header->tensors) tensor.begin += payload;
  return SafetensorsReader(std::move(file), std::move(header->tensors),
                           std::move(header->metadata));
}

const SafetensorsReader::Tensor* SafetensorsReader::Find(
    std::string_view name) const {
  const auto found = std::find_if(
      tensors_.begin(), tensors_.end(),
      [&](const Tensor& tensor) { return tensor.info.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

Status SafetensorsReader::ReadTensor(std::string_view name,
                                     std::span<std::byte> bytes) const {
  const Tensor* tensor = Find(name);
  if (tensor != nullptr && tensor->bytes != bytes.size()) {
    return Status::Failed(
        fmt::format("tensor '{}' of {} has {} bytes, {} are expected; the file "
                    "belongs to another model or precision",
                    name, path(), tensor->bytes, bytes.size()));
  }
  return ReadTensorPart(name, 0, bytes);
}

Status SafetensorsReader::ReadTensorPart(std::string_view name, uint64_t begin,
                                         std::span<std::byte> bytes) const {
  const Tensor* tensor = Find(name);
  if (tensor == nullptr) {
    return Status::Failed(
        fmt::format("{} has no tensor '{}'; the file belongs to another model",
                    path(), name));
  }
  if (begin > tensor->bytes || bytes.size() > tensor->bytes - begin) {
    return Status::Usage(fmt::format(
        "tensor '{}' of {} has {} bytes; bytes {} to {} are not in it", name,
        path(), tensor->bytes, begin, begin + bytes.size()));
  }
  return ReadFullyAt(file_, bytes, tensor->begin + begin);
}

}  // namespace thimble
