// SPDX-License-Identifier: Apache-2.0
//
// PageWriter: a page that is written as it is made, so that a large one takes
// no more memory than a small one. Belongs to one thread.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/files.h"
#include "thimble/status.h"

namespace thimble::report {

// Appends to a file by pieces. The first error is kept and given by Finish.
class PageWriter {
 public:
  explicit PageWriter(AtomicFileWriter file) : file_(std::move(file)) {}

  template <typename... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format,
                   std::forward<Args>(args)...);
    if (text_.size() >= kPiece) Flush();
  }

  Status Finish() {
    Flush();
    TH_RETURN_IF_ERROR(status_);
    return file_.Commit();
  }

 private:
  static constexpr size_t kPiece = size_t{64} * 1024;

  void Flush() {
    if (status_.ok()) {
      status_ = file_.Write(std::as_bytes(std::span(text_)));
    }
    text_.clear();
  }

  AtomicFileWriter file_;
  std::string text_;
  Status status_ = Status::Ok();
};

}  // namespace thimble::report
