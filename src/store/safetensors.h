// SPDX-License-Identifier: Apache-2.0
//
// The safetensors file format: 8 bytes of little-endian header length, a JSON
// header naming each tensor's type, shape and byte range, then the bytes of the
// tensors one after the other. Tensors stream between the file and the caller's
// memory; only the header is ever held here.
//
// SafetensorsWriter belongs to one thread. SafetensorsReader is immutable after
// Open, and its methods are safe from every thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "thimble/status.h"

namespace thimble {

using SafetensorsMetadata = std::map<std::string, std::string>;

struct TensorInfo {
  std::string name;
  std::string dtype;  // "F32", "F16", "BF16", "U8", "I32", "I64", …
  std::vector<uint64_t> shape;
};

// Bytes of a tensor: elements times the size of its type. An error for a type
// that the format does not know, and on overflow.
Result<uint64_t> TensorBytes(const TensorInfo& info);

// Writes one file, atomically. All tensors are declared first, because the
// header comes first; then their bytes are appended in the order of
// declaration, in pieces of any size.
class SafetensorsWriter {
 public:
  // Names must be different from each other and from "__metadata__"; names and
  // metadata must be UTF-8.
  static Result<SafetensorsWriter> Create(const std::string& path,
                                          std::span<const TensorInfo> tensors,
                                          const SafetensorsMetadata& metadata);
  Status Append(std::span<const std::byte> bytes);
  // Fails unless exactly the declared bytes were appended.
  Status Commit();

 private:
  SafetensorsWriter(std::string path, AtomicFileWriter writer, uint64_t bytes);

  std::string path_;
  AtomicFileWriter writer_;
  uint64_t bytes_left_;
};

struct TensorView {
  TensorInfo info;
  std::span<const std::byte> bytes;
};

// The whole file in one call, for tensors that are in memory.
Status WriteSafetensors(const std::string& path,
                        std::span<const TensorView> tensors,
                        const SafetensorsMetadata& metadata);

// Reads files of any writer. Everything in the header is checked on Open.
class SafetensorsReader {
 public:
  struct Tensor {
    TensorInfo info;
    uint64_t begin;  // offset in the file
    uint64_t bytes;
  };

  static Result<SafetensorsReader> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // In the order of their bytes in the file.
  std::span<const Tensor> tensors() const { return tensors_; }
  const SafetensorsMetadata& metadata() const { return metadata_; }
  // Null if there is no such tensor. Valid as long as this reader.
  const Tensor* Find(std::string_view name) const;

  // Reads a whole tensor; `bytes` must have exactly its size.
  Status ReadTensor(std::string_view name, std::span<std::byte> bytes) const;
  // Reads bytes [begin, begin + bytes.size()) of a tensor.
  Status ReadTensorPart(std::string_view name, uint64_t begin,
                        std::span<std::byte> bytes) const;

 private:
  SafetensorsReader(FileDescriptor file, std::vector<Tensor> tensors,
                    SafetensorsMetadata metadata);

  FileDescriptor file_;
  std::vector<Tensor> tensors_;
  SafetensorsMetadata metadata_;
};

}  // namespace thimble
