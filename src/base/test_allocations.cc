// SPDX-License-Identifier: Apache-2.0
//
// In a file of its own: where the compiler can inline these into their callers,
// it warns of new and free being mixed.
#include "base/test_allocations.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> allocations{0};

void* CountedAllocation(size_t size, size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  // aligned_alloc wants a multiple of the alignment.
  const size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* const memory =
      std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(size_t size) {
  return CountedAllocation(size, alignof(std::max_align_t));
}
void* operator new(size_t size, std::align_val_t alignment) {
  return CountedAllocation(size, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace thimble {

int64_t AllocationCount() {
  return allocations.load(std::memory_order_relaxed);
}

}  // namespace thimble
