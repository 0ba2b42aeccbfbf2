// SPDX-License-Identifier: Apache-2.0
//
// Test only: elements that end where an unreadable page begins, so that a
// kernel which reads or writes past them dies, in every build and on every
// target. (testing.h's GuardedBuffer sees writes alone.)
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <span>

namespace thimble::kernels::testing {

template <typename T>
class GuardPageBuffer {
 public:
  explicit GuardPageBuffer(size_t n) : n_(n) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t usable = (n * sizeof(T) + page - 1) / page * page;
    bytes_ = usable + page;
    map_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map_ == MAP_FAILED) {
      ADD_FAILURE() << "mmap failed";
      return;
    }
    std::byte* end = static_cast<std::byte*>(map_) + usable;
    EXPECT_EQ(mprotect(end, page, PROT_NONE), 0);
    data_ = reinterpret_cast<T*>(end) - n;
  }
  ~GuardPageBuffer() {
    if (map_ != MAP_FAILED) munmap(map_, bytes_);
  }
  GuardPageBuffer(const GuardPageBuffer&) = delete;
  GuardPageBuffer& operator=(const GuardPageBuffer&) = delete;

  T* data() { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  std::span<T> span() { return {data_, n_}; }

 private:
  size_t n_;
  size_t bytes_ = 0;
  void* map_ = MAP_FAILED;
  T* data_ = nullptr;
};

}  // namespace thimble::kernels::testing
