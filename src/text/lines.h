// SPDX-License-Identifier: Apache-2.0
//
// Text from files, line by line, in bounded memory. Errors name file and line.
// A LineReader belongs to one thread; functions are pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "thimble/status.h"

namespace thimble::text {

// Longer ones are no sentences.
inline constexpr size_t kLongestLine = size_t{1} << 20;

class LineReader {
 public:
  static Result<LineReader> Open(const std::string& path);

  // Whether there was a further line, which is in `line` until the next call,
  // without its end. What is not UTF-8, or has a NUL byte, is an error.
  Result<bool> Next(std::string_view* line);
  const std::string& path() const { return file_.path(); }
  // Of the last line, from 1.
  uint64_t number() const { return number_; }
  uint64_t bytes_read() const { return offset_ - (filled_ - at_); }
  uint64_t bytes() const { return bytes_; }

 private:
  LineReader(FileDescriptor file, uint64_t bytes);
  Status Fill();
  Status Check(std::string_view line) const;
  Status Bad(const std::string& what) const;
  Status TooLong() const;

  FileDescriptor file_;
  uint64_t bytes_;
  uint64_t offset_ = 0;  // of what is read next
  uint64_t number_ = 0;
  std::vector<char> buffer_;
  size_t at_ = 0, filled_ = 0;  // what is left in the buffer
};

// A whole file of up to 64 MiB: codes and dictionaries.
Result<std::string> ReadSmallFile(const std::string& path);

// Calls `each` with the words of a line, which white space of ASCII divides.
template <typename Each>
void ForEachWord(std::string_view line, const Each& each) {
  constexpr std::string_view kSpace = " \t\r\v\f";
  while (true) {
    const size_t begin = line.find_first_not_of(kSpace);
    if (begin == std::string_view::npos) return;
    line.remove_prefix(begin);
    const size_t end = std::min(line.find_first_of(kSpace), line.size());
    each(line.substr(0, end));
    line.remove_prefix(end);
  }
}

}  // namespace thimble::text
