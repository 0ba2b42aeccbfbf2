// SPDX-License-Identifier: Apache-2.0
#include "planner/batch_statistics.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "graph/op.h"
#include "ops/batch_norm.h"

namespace thimble::planner {
namespace {

// A batch norm with one value per channel and row of the batch; null without
// any.
const Op* FindNormOfPoints(const Graph& graph) {
  for (const Op& op : graph.ops()) {
    if (Is<ops::BatchNorm>(op) &&
        graph.value(op.inputs[0]).spec.shape.elements_from(2) == 1) {
      return &op;
    }
  }
  return nullptr;
}

// The same in an executable graph, where norms may be parts of convolutions.
// What follows the running statistics is there for each; its name is theirs.
std::string FindTrackedNormOfPoints(const Graph& graph) {
  constexpr std::string_view kSuffix = ".running_mean";
  for (const Op& op : graph.ops()) {
    if (!Is<ops::BatchNormTrack>(op)) continue;
    const auto& track = static_cast<const ops::BatchNormTrack&>(*op.def);
    if (track.positions() != 1) continue;
    const std::string& name = graph.value(op.inputs[2]).name;
    return name.substr(0, name.size() - kSuffix.size());
  }
  return "";
}

// The option that says how much a batch norm sees at a time.
const char* StatisticsOption(const PlanOptions& options) {
  if (options.ghost_batch > 0) return "PlanOptions::ghost_batch";
  return options.microbatch > 0 ? "PlanOptions::microbatch" : "Model::batch";
}

}  // namespace

int64_t LeastMicrobatchOfStatistics(const Model& model) {
  return FindNormOfPoints(model.graph) == nullptr ? 1 : 2;
}

Status CheckStatistics(const Model& model, const PlanOptions& options) {
  const int64_t pass =
      options.microbatch > 0 ? options.microbatch : model.batch();
  const int64_t seen = options.ghost_batch > 0 ? options.ghost_batch : pass;
  const Op* norm = FindNormOfPoints(model.graph);
  if (!options.training || seen > 1 || norm == nullptr) return Status::Ok();
  return Status::Usage(fmt::format(
      "batch norm '{}' would see one value per channel in training, of which "
      "there is no variance: one {} at a time, with one position in it; use a "
      "{} of 2 or more",
      norm->name, model.graph.axes()[kBatchAxis.index()].Unit(),
      StatisticsOption(options)));
}

Status CheckLastBatch(const Plan& plan, int64_t count,
                      std::string_view remedy) {
  // What is left over, or a full part.
  const auto last_of = [](int64_t whole, int64_t part) {
    return whole % part > 0 ? whole % part : part;
  };
  int64_t seen = last_of(count, plan.microbatch());
  const int64_t group = plan.options().ghost_batch;
  if (group > 0) seen = last_of(seen, group);
  if (seen > 1) return Status::Ok();
  const std::string norm = FindTrackedNormOfPoints(plan.graph());
  if (norm.empty()) return Status::Ok();
  return Status::Usage(fmt::format(
      "the last batch of an epoch holds {}, the last of which batch norm '{}' "
      "would see alone: one value per channel, of which there is no "
      "variance; {}, or choose another {}",
      plan.graph().axes()[kBatchAxis.index()].Counted(count), norm, remedy,
      StatisticsOption(plan.options())));
}

}  // namespace thimble::planner
