// SPDX-License-Identifier: Apache-2.0
//
// IDX, the file format of MNIST and its relatives: a magic number, big-endian
// extents, then bytes. Everything in the header is checked against the length
// of the file before it is believed; every error names the file.
//
// IdxSplit: immutable after Open; Read is safe from every thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/files.h"
#include "base/sha256.h"
#include "data/pixel_statistics.h"
#include "thimble/status.h"

namespace thimble {

// Labels of all sets of this family are digits 0..9.
inline constexpr int32_t kIdxClasses = 10;

struct IdxImagesHeader {
  static constexpr uint64_t kBytes = 16;
  int64_t count;
  int64_t height;
  int64_t width;
};

struct IdxLabelsHeader {
  static constexpr uint64_t kBytes = 8;
  int64_t count;
};

enum class IdxKind { kImages, kLabels };

// Of a file's header, whatever follows it.
size_t IdxHeaderBytes(IdxKind kind);
// The length of a whole file that begins with `header`, or why it is no header.
// Errors name `path`. One shorter than IdxHeaderBytes is refused.
Result<uint64_t> PromisedIdxBytes(const std::string& path, IdxKind kind,
                                  std::span<const std::byte> header);

// Headers that the file's length agrees with.
Result<IdxImagesHeader> ReadIdxImagesHeader(const FileDescriptor& file);
Result<IdxLabelsHeader> ReadIdxLabelsHeader(const FileDescriptor& file);

// One split: a file of images and the file of their labels.
class IdxSplit {
 public:
  static Result<IdxSplit> Open(const std::string& images_path,
                               const std::string& labels_path);

  int64_t count() const { return header_.count; }
  int64_t height() const { return header_.height; }
  int64_t width() const { return header_.width; }

  // REQUIRES: 0 <= index < count(), image.size() == height() * width().
  Status Read(int64_t index, std::span<uint8_t> image, int32_t* label) const;

  // Checks every label, so that a bad one is found before training begins, and
  // adds them all to `digest`.
  Status CheckLabels(Sha256* digest) const;
  // Adds every pixel to `statistics`, in small pieces.
  Status Measure(PixelStatistics* statistics) const;

 private:
  IdxSplit(FileDescriptor images, FileDescriptor labels,
           const IdxImagesHeader& header);
  Status CheckLabel(int64_t index, uint8_t label) const;

  FileDescriptor images_;
  FileDescriptor labels_;
  IdxImagesHeader header_;
};

}  // namespace thimble
