// SPDX-License-Identifier: Apache-2.0
//
// What the kernel says this process holds. Reads /proc without allocating, so
// it may be called between training steps.
#pragma once

#include <cstdint>

namespace thimble {

// Resident bytes now; 0 where /proc is not available.
int64_t CurrentRssBytes();

// Largest resident size since start or since the last ResetPeakRss.
int64_t PeakRssBytes();

// Starts PeakRssBytes afresh. Returns false where the kernel does not allow it.
bool ResetPeakRss();

// Gives heap that is free back to the kernel, where the C library can: planning
// a network of a thousand layers takes more than its training step.
void ReturnFreeHeap();

}  // namespace thimble
