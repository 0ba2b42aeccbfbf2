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

// The same for what the calling thread's stack has grown to, below the caller:
// deep recursions leave it in memory.
void ReturnFreeStack();

// Where code is run, Linux maps what is in its cache of the 64 kB around it, of
// which most is never run. It does so within one mapping only: from now on,
// those of the program's own code and constants have 16 kB each. A page that is
// touched first costs a fault, and a mapping some 200 bytes of the kernel.
void MapCodeInPieces();

// Gives back the pages of the program's own code and constants. Those that are
// used again come back from its file one by one. Worth it where one piece of a
// program is done with for good: planning, before training. Does nothing where
// a debugger is attached, whose breakpoints stand in these pages.
void ReturnCode();

}  // namespace thimble
