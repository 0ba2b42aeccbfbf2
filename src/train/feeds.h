// SPDX-License-Identifier: Apache-2.0
//
// A session's feeds as a source of batches sees them. The buffers are the
// arena's: valid as long as the session. Safe from every thread.
#pragma once

#include <cstdint>
#include <vector>

#include "thimble/batches.h"
#include "thimble/plan.h"
#include "thimble/session.h"
#include "thimble/status.h"

namespace thimble::train {

// `ends` is train_ends() or evaluate_ends() of the session's plan.
std::vector<FeedBuffer> FeedsOf(Session& session, const PhaseEnds& ends);

// Fails where a microbatch of the source has no rows, or more than `room`.
Status CheckRows(const BatchSource& source, int64_t rows, int64_t room);

}  // namespace thimble::train
