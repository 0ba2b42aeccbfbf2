// SPDX-License-Identifier: Apache-2.0
//
// Ctrl-C and the like, for commands that end cleanly.
#pragma once

#include <atomic>

namespace thimble::cli {

// From here on a signal that asks the process to end sets what this gives. A
// second one ends the process by itself. Writing to what is closed is an error,
// no signal. Called by the main thread, once.
const std::atomic<bool>* StopOnSignals();

}  // namespace thimble::cli
