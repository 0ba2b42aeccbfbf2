// SPDX-License-Identifier: Apache-2.0
//
// Lines of a descriptor that may be a file, a pipe or a terminal, and text
// written to one. Plain system calls: nothing is held back. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "thimble/status.h"

namespace thimble::translate {

// Longer ones are no text.
inline constexpr size_t kLongestLine = size_t{1} << 20;

class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd), buffer_(size_t{64} << 10) {}

  // The next line without its end, until the next call; false at the end of
  // the input, where a last line without an end is one. Waits.
  Result<bool> Next(std::string_view* line);
  // Whether Next has a line, or the end, without a wait worth noting.
  bool IsReady();
  int64_t lines() const { return lines_; }  // so far

 private:
  // More bytes, behind those that are there; false at the end.
  Result<bool> Fill();
  bool HasLine() const;

  int fd_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // of what is left in the buffer
  bool is_at_end_ = false;
  int64_t lines_ = 0;
};

// All of it, or an error.
Status WriteText(int fd, std::string_view text);

}  // namespace thimble::translate
