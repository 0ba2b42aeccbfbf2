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

Status Foreign(const std::string& path, const std::string& why) {
  return Status::Failed(fmt::format(
      "{} is not a usable safetensors file: {}; it is damaged or of another "
      "kind, use a good copy",
      path, why));
}

}  // namespace

Result<uint64_t> ReadHeaderLength(const FileDescriptor& file) {
  TH_ASSIGN_OR_RETURN(const FileStamp stamp, StampOf(file));
  if (stamp.bytes < kLengthBytes) {
    return Foreign(file.path(), fmt::format("it has {} bytes", stamp.bytes));
  }
  std::array<std::byte, kLengthBytes> prefix;
  TH_RETURN_IF_ERROR(ReadFullyAt(file, prefix, 0));
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | std::to_integer<uint64_t>(prefix[i]);
  }
  if (length > kMaxSafetensorsHeaderBytes ||
      length > stamp.bytes - kLengthBytes) {
    return Foreign(
        file.path(),
        fmt::format("it claims a header of {} bytes, of {} in all; at most {} "
                    "are read",
                    length, stamp.bytes, kMaxSafetensorsHeaderBytes));
  }
  return length;
}

SafetensorsReader::SafetensorsReader(FileDescriptor file,
                                     std::vector<Tensor> tensors,
                                     SafetensorsMetadata metadata)
    : file_(std::move(file)),
      tensors_(std::move(tensors)),
      metadata_(std::move(metadata)) {}

Result<SafetensorsReader> SafetensorsReader::Open(const std::string& path) {
  TH_ASSIGN_OR_RETURN(FileDescriptor file, OpenForReading(path));
  TH_ASSIGN_OR_RETURN(const uint64_t length, ReadHeaderLength(file));
  TH_ASSIGN_OR_RETURN(const FileStamp stamp, StampOf(file));
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
