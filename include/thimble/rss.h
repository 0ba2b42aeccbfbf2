// SPDX-License-Identifier: Apache-2.0
//
// RSS, the resident set size: the bytes of this process that are in memory, as
// the kernel counts them. Read from /proc without allocating, so it may be
// asked for between training steps. Safe from every thread.
#pragma once

#include <cstdint>

namespace thimble {

// Resident bytes now. 0 if there is no /proc.
int64_t CurrentRssBytes();

// The most resident bytes since the start, or since the last ResetPeakRss.
int64_t PeakRssBytes();

// Makes PeakRssBytes begin anew. False if the kernel does not allow it.
bool ResetPeakRss();

// Gives free heap back to the kernel, if the C library can do that. Worth it
// after planning: for a network of a thousand layers, planning takes more
// memory than a training step.
void ReturnFreeHeap();

}  // namespace thimble
