// SPDX-License-Identifier: Apache-2.0
//
// For tests only: linking this replaces malloc and its kin (under sanitizers:
// operator new) by ones that count, so that a test can prove that a piece of
// code allocates nothing. Safe from every thread.
#pragma once

#include <cstdint>

namespace thimble {

// Heap allocations in this process so far, in any thread.
int64_t AllocationCount();

}  // namespace thimble
