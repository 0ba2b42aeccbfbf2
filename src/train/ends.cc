// SPDX-License-Identifier: Apache-2.0
#include "train/ends.h"

#include <fmt/format.h>

#include "base/check.h"

namespace thimble {

void FeedBuffer::CheckStored(DType dtype) const {
  TH_CHECK(spec->storage == dtype);
}

namespace train {

std::vector<FeedBuffer> FeedsOf(Session& session, const Ends& ends) {
  const Graph& graph = session.plan().graph();
  std::vector<FeedBuffer> feeds;
  feeds.reserve(ends.feeds.size());
  for (const End& feed : ends.feeds) {
    feeds.push_back(
        {feed.name, &graph.value(feed.value).spec, session.Bytes(feed.value)});
  }
  return feeds;
}

std::string_view AxisNameOf(const Plan& plan) {
  return plan.graph().axes()[kBatchAxis.index()].name;
}

std::vector<MetricName> MetricsOf(const Plan& plan) {
  const std::vector<End>& metrics = plan.evaluate_ends().metrics;
  std::vector<MetricName> names;
  names.reserve(metrics.size());
  for (const End& metric : metrics) {
    const Storage& storage = plan.graph().value(metric.value).spec.storage;
    names.push_back({metric.name, storage == DType::kI32});
  }
  return names;
}

void AddMetrics(const PassResult& result, std::span<double> sums) {
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += result.metrics[i];
}

Result<AxisParts> PartsOf(const BatchSource& source, const Plan& plan,
                          const AxisCounts& counts, const AxisCounts& done,
                          const AxisCounts& total) {
  AxisParts parts = {};
  const std::span<const Axis> axes = plan.graph().axes();
  for (size_t i = 0; i < axes.size(); ++i) {
    if (counts[i] < 1 || counts[i] > axes[i].capacity) {
      return Status::Failed(fmt::format(
          "the source '{}' filled {} of a microbatch that has room for {}; "
          "it must fill at least one, and no more",
          source.name(), axes[i].Counted(counts[i]), axes[i].capacity));
    }
    if (done[i] + counts[i] > total[i]) {
      return OtherThanNamed(source, axes[i], done[i] + counts[i], total[i]);
    }
    parts[i] = {.first = done[i], .count = counts[i], .total = total[i]};
  }
  return parts;
}

Status OtherThanNamed(const BatchSource& source, const Axis& axis,
                      int64_t filled, int64_t named) {
  return Status::Failed(fmt::format(
      "the source '{}' filled {} of a step for which it had named {}",
      source.name(), axis.Counted(filled), named));
}

}  // namespace train
}  // namespace thimble
