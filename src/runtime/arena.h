// SPDX-License-Identifier: Apache-2.0
//
// Arena: the one block of memory that training uses, an anonymous mapping of
// the planned size rounded up to pages. Zero-filled by the kernel on first
// touch.
#pragma once

#include <cstddef>
#include <utility>

#include "thimble/status.h"

namespace thimble::runtime {

class Arena {
 public:
  static Result<Arena> Map(size_t bytes);
  ~Arena();
  Arena(Arena&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        mapped_(std::exchange(other.mapped_, 0)) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Arena& operator=(Arena&&) = delete;

  std::byte* base() const { return base_; }

 private:
  Arena(std::byte* base, size_t mapped) : base_(base), mapped_(mapped) {}

  std::byte* base_;
  size_t mapped_;
};

}  // namespace thimble::runtime
