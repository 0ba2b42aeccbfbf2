// SPDX-License-Identifier: Apache-2.0
//
// Status and Result<T>: how every failure that a user can cause is reported.
// The message says what is wrong and what to do about it. Bugs of our own are
// not reported this way: they end the program. Plain values, freely copied
// between threads.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace thimble {

enum class StatusCode {
  kOk,
  kUsage,   // the caller asked for something impossible; the tool exits 2
  kFailed,  // files, data, memory or the budget said no; the tool exits 1
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  static Status Ok() { return Status(); }
  static Status Usage(std::string message) {
    return Status(StatusCode::kUsage, std::move(message));
  }
  static Status Failed(std::string message) {
    return Status(StatusCode::kFailed, std::move(message));
  }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  // Empty when ok().
  const std::string& message() const { return message_; }

 private:
  Status(StatusCode code, std::string message)
      : code_(code), message_(std::move(message)) {}

  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// Either a value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit on purpose: `return value;` and `return Status::Failed(...);`.
  Result(T value) : value_(std::move(value)) {}          // NOLINT
  Result(Status status) : status_(std::move(status)) {}  // NOLINT

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // REQUIRES: ok().
  const T& value() const& { return *value_; }
  T& value() & { return *value_; }
  T&& value() && { return *std::move(value_); }
  const T& operator*() const& { return *value_; }
  T& operator*() & { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  const T* operator->() const { return &*value_; }
  T* operator->() { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace thimble
