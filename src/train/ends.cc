// SPDX-License-Identifier: Apache-2.0
#include "train/ends.h"

#include <fmt/format.h>

namespace thimble::train {

std::vector<FeedBuffer> FeedsOf(Session& session, const PhaseEnds& ends) {
  const Graph& graph = session.plan().graph();
  const auto feed = [&](std::string_view name, ValueId value) {
    return FeedBuffer{name, &graph.value(value).spec, session.Bytes(value)};
  };
  return {feed("images", ends.images), feed("labels", ends.labels)};
}

std::string_view AxisNameOf(const Plan&) { return "images"; }

std::vector<MetricName> MetricsOf(const Plan&) { return {{"accuracy", true}}; }

void AddMetrics(const BatchResult& result, std::span<double> sums) {
  sums[0] += static_cast<double>(result.correct);
}

Status CheckRows(const BatchSource& source, int64_t rows, int64_t room) {
  if (rows >= 1 && rows <= room) return Status::Ok();
  return Status::Failed(
      fmt::format("the source '{}' filled {} rows of a microbatch that has "
                  "room for {}; it must fill at least one, and no more",
                  source.name(), rows, room));
}

}  // namespace thimble::train
