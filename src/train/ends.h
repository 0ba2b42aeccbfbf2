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
std::vector<FeedBuffer> FeedsOf(Session& session, const Ends& ends);

// What the plan's first axis counts, as "images". Losses are means over it, and
// speed is told by it.
std::string_view AxisNameOf(const Plan& plan);

struct MetricName {
  std::string name;
  // It counts what something holds for, so that its mean is a share.
  bool is_share = false;
};
std::vector<MetricName> MetricsOf(const Plan& plan);

// Adds a pass's sums to `sums`, one per metric.
void AddMetrics(const PassResult& result, std::span<double> sums);

// What a pass uses of each axis: `counts`, after `done` of the `total` of its
// step. Fails where the source has filled nothing, more than the plan has room
// for, or more than it had named for the step.
Result<AxisParts> PartsOf(const BatchSource& source, const Plan& plan,
                          const AxisCounts& counts, const AxisCounts& done,
                          const AxisCounts& total);
// The same for a pass that is a step of its own.
inline Result<AxisParts> PartsOf(const BatchSource& source, const Plan& plan,
                                 const AxisCounts& counts) {
  return PartsOf(source, plan, counts, /*done=*/{}, /*total=*/counts);
}

// A source that has filled `filled` of a step for which it had named `named`.
Status OtherThanNamed(const BatchSource& source, const Axis& axis,
                      int64_t filled, int64_t named);

}  // namespace thimble::train
