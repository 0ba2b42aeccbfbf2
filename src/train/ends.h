// SPDX-License-Identifier: Apache-2.0
//
// What a trainer feeds and reads, as the plan names it: feeds as a source of
// batches sees them, metrics, and what is counted. Safe from every thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "thimble/batches.h"
#include "thimble/plan.h"
#include "thimble/session.h"
#include "thimble/status.h"

namespace thimble::train {

// `ends` is train_ends() or evaluate_ends() of the session's plan. The buffers
// are the arena's: valid as long as the session.
std::vector<FeedBuffer> FeedsOf(Session& session, const PhaseEnds& ends);

// What the plan's first axis counts: "images". Losses are means over it, and
// speed is told by it.
std::string_view AxisNameOf(const Plan& plan);

struct MetricName {
  std::string name;
  // It counts what something holds for, so that its mean is a share.
  bool is_share = false;
};
std::vector<MetricName> MetricsOf(const Plan& plan);

// Adds a pass's sums to `sums`, one per metric.
void AddMetrics(const BatchResult& result, std::span<double> sums);

// Fails where a microbatch of the source has no rows, or more than `room`.
Status CheckRows(const BatchSource& source, int64_t rows, int64_t room);

}  // namespace thimble::train
