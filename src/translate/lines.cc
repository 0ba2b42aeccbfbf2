// SPDX-License-Identifier: Apache-2.0
#include "translate/lines.h"

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace thimble::translate {
namespace {

// What a program that writes line after line may take in between.
constexpr int kMomentMs = 20;

}  // namespace

bool LineReader::HasLine() const {
  return std::memchr(buffer_.data() + begin_, '\n', end_ - begin_) != nullptr;
}

Result<bool> LineReader::Fill() {
  if (is_at_end_) return false;
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == buffer_.size()) {
    if (buffer_.size() > kLongestLine) {
      return Status::Failed(
          fmt::format("line {} of the input is longer than {} bytes: it is no "
                      "text of a sentence a line",
                      lines_ + 1, kLongestLine));
    }
    buffer_.resize(2 * buffer_.size());
  }
  for (;;) {
    const ssize_t got = read(fd_, buffer_.data() + end_, buffer_.size() - end_);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return Status::Failed(
          fmt::format("the input cannot be read: {}", std::strerror(errno)));
    }
    end_ += static_cast<size_t>(got);
    is_at_end_ = got == 0;
    return got > 0;
  }
}

Result<bool> LineReader::Next(std::string_view* line) {
  size_t searched = 0;
  for (;;) {
    const std::string_view left(buffer_.data() + begin_, end_ - begin_);
    const size_t length = left.find('\n', searched);
    if (length != std::string_view::npos) {
      *line = left.substr(0, length);
      begin_ += length + 1;
      ++lines_;
      return true;
    }
    searched = left.size();
    TH_ASSIGN_OR_RETURN(const bool has_more, Fill());
    if (has_more) continue;
    *line = {buffer_.data() + begin_, end_ - begin_};
    begin_ = end_;
    if (line->empty()) return false;
    ++lines_;
    return true;
  }
}

bool LineReader::IsReady() {
  if (is_at_end_ || HasLine()) return true;
  pollfd wait = {.fd = fd_, .events = POLLIN, .revents = 0};
  // An error is for Next to tell.
  return poll(&wait, 1, kMomentMs) != 0;
}

Status WriteText(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      return Status::Failed(
          fmt::format("the output could not be written to its end: {}",
                      std::strerror(errno)));
    }
    text.remove_prefix(static_cast<size_t>(put));
  }
  return Status::Ok();
}

}  // namespace thimble::translate
