// SPDX-License-Identifier: Apache-2.0
//
// PairReader: two files of sentences, line by line together. Belongs to one
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/lines.h"
#include "thimble/status.h"
#include "thimble/text_data.h"

namespace thimble::text {

class PairReader {
 public:
  // The files of the source and of the target.
  static Result<PairReader> Open(
      const std::array<std::string, kTextSides>& paths);

  // Whether there was a further pair; both files must end at once, and hold a
  // line. Lines stay until the next call.
  Result<bool> Next();
  std::string_view line(size_t side) const { return lines_[side]; }
  // From 0.
  uint32_t number() const { return number_; }
  uint64_t bytes_read() const {
    return files_[0].bytes_read() + files_[1].bytes_read();
  }
  uint64_t bytes() const { return files_[0].bytes() + files_[1].bytes(); }

 private:
  explicit PairReader(std::array<LineReader, kTextSides> files)
      : files_(std::move(files)) {}
  // Of a file that went on when the other one had ended.
  Status Uneven(size_t longer);

  std::array<LineReader, kTextSides> files_;
  std::array<std::string_view, kTextSides> lines_;
  uint32_t number_ = 0;
};

}  // namespace thimble::text
