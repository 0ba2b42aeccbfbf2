// SPDX-License-Identifier: Apache-2.0
//
// The test split through a session's evaluate phase: what an epoch ends with,
// and what Evaluate reports. One thread at a time, as the session.
#pragma once

#include <atomic>
#include <cstdint>

#include "thimble/data.h"
#include "thimble/session.h"
#include "thimble/status.h"

namespace thimble::train {

struct TestResult {
  double loss = 0;      // mean over all images
  double accuracy = 0;  // share of them
};

// A microbatch of the split, from image `first` on, the last one partial.
Result<BatchResult> TestPart(Session& session, const Dataset& data,
                             int64_t first);

// Every image. Fails where `stop`, if given, is set meanwhile.
Result<TestResult> Test(Session& session, const Dataset& data,
                        const std::atomic<bool>* stop);

}  // namespace thimble::train
