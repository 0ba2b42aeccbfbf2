// SPDX-License-Identifier: Apache-2.0
//
// The safetensors file format: 8 bytes of little-endian header length, a JSON
// header naming each tensor's type, shape and byte range, then the bytes of the
// tensors one after the other. Tensors stream between the file and the caller's
// memory; only the header is ever held here.
//
// The readers are immutable after Open, and their methods are safe from every
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/function_ref.h"
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

struct TensorView {
  TensorInfo info;
  std::span<const std::byte> bytes;
};

// What a file is to hold. Tensors are asked for one at a time and in order,
// more than once, so that a network of thousands costs no list of them.
struct SafetensorsContents {
  size_t count = 0;
  FunctionRef<TensorView(size_t)> tensor;
  const SafetensorsMetadata& metadata;
};

// The next bytes of what is written.
using ByteSink = FunctionRef<Status(std::span<const std::byte>)>;

// The same where no tensor is in memory as a whole: `bytes` hands on all of a
// tensor's, piece by piece, whenever it is asked to, which is twice with a
// seal.
struct SafetensorsStream {
  size_t count = 0;
  FunctionRef<TensorInfo(size_t)> info;
  FunctionRef<Status(size_t, ByteSink)> bytes;
  const SafetensorsMetadata& metadata;
};

// Whether a file carries a checksum of all its bytes: as its first metadata,
// under kSafetensorsSeal, the SHA-256 of the file with 64 zeros in that place.
enum class Seal { kNone, kSha256 };
inline constexpr char kSafetensorsSeal[] = "file_sha256";

// Names must be different from each other and from "__metadata__"; names and
// metadata must be UTF-8.
Status WriteSafetensors(AtomicFileWriter writer,
                        const SafetensorsContents& contents, Seal seal);

Status StreamSafetensors(AtomicFileWriter writer,
                         const SafetensorsStream& stream, Seal seal);

// Fails unless the file carries the checksum, in its place, and it fits.
Status CheckSeal(const FileDescriptor& file);

// A file that was written with a seal, and is read with the same tensors in the
// same order: nothing but its metadata is ever held.
class SealedSafetensors {
 public:
  // Checks the seal.
  static Result<SealedSafetensors> Open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  // Without the seal.
  const SafetensorsMetadata& metadata() const { return metadata_; }

  struct Target {
    TensorInfo info;
    std::span<std::byte> bytes;
  };
  // Fills all tensors. Fails where the file has others, before it fills any.
  Status ReadTensors(size_t count, FunctionRef<Target(size_t)> target) const;

 private:
  SealedSafetensors(FileDescriptor file, SafetensorsMetadata metadata,
                    uint64_t tensors_begin, uint64_t payload_begin);

  FileDescriptor file_;
  SafetensorsMetadata metadata_;
  uint64_t entries_begin_;  // of the header, behind its metadata
  uint64_t payload_begin_;
};

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
  const FileDescriptor& file() const { return file_; }
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
