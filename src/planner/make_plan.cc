// SPDX-License-Identifier: Apache-2.0
//
// MakePlan: options are checked, then a plan is chosen.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/parallel.h"
#include "planner/batch_statistics.h"
#include "planner/choose.h"
#include "planner/recompute/strategy.h"
#include "thimble/plan.h"

namespace thimble {
namespace {

// The largest divisor of `batch` up to `most`.
int64_t DivisorUpTo(int64_t batch, int64_t most) {
  int64_t divisor = std::clamp<int64_t>(most, 1, batch);
  while (batch % divisor != 0) --divisor;
  return divisor;
}

Status CheckDivides(const char* what, int64_t images, const char* of,
                    int64_t whole) {
  if (images >= 0 && images <= whole && (images == 0 || whole % images == 0)) {
    return Status::Ok();
  }
  return Status::Usage(
      fmt::format("a {} of {} images does not divide the {} of {}; {} would",
                  what, images, of, whole, DivisorUpTo(whole, images)));
}

// What is asked for and would change nothing is mostly a mistake.
Status CheckHasEffect(const Model& model, const PlanOptions& options) {
  if (options.min_microbatch > 0 && !options.allow_microbatch) {
    return Status::Usage(fmt::format(
        "a smallest microbatch of {} has no effect where the budget may not "
        "choose the microbatch; add --allow microbatch, or leave out "
        "--min-microbatch",
        options.min_microbatch));
  }
  if (options.ghost_batch > 0 && !planner::HasBatchNorm(model)) {
    return Status::Usage(fmt::format(
        "a ghost batch of {} images has no effect on {}, which has no batch "
        "norms; leave out --ghost-batch",
        options.ghost_batch, model.name));
  }
  return Status::Ok();
}

Status CheckMicrobatch(const Model& model, const PlanOptions& options) {
  Status status =
      CheckDivides("microbatch", options.microbatch, "batch", model.batch());
  if (!status.ok()) return status;
  if (options.min_microbatch < 0 || options.min_microbatch > model.batch()) {
    return Status::Usage(fmt::format(
        "the smallest microbatch allowed must be between 1 and the batch of "
        "{}, got {}",
        model.batch(), options.min_microbatch));
  }
  status = CheckHasEffect(model, options);
  if (!status.ok()) return status;
  const bool is_fixed = options.microbatch > 0;
  status = CheckDivides("ghost batch", options.ghost_batch,
                        is_fixed ? "microbatch" : "batch",
                        is_fixed ? options.microbatch : model.batch());
  return status.ok() ? planner::CheckStatistics(model, options) : status;
}

Status CheckOptions(const PlanOptions& options) {
  if (options.threads < 1 || options.threads > ThreadPool::kMaxThreads) {
    return Status::Usage(fmt::format("threads must be between 1 and {}, got {}",
                                     ThreadPool::kMaxThreads, options.threads));
  }
  const Status optimizer = options.optimizer->Check();
  if (!optimizer.ok()) return optimizer;
  return planner::ParseStrategy(options.checkpoint).status();
}

}  // namespace

Result<Plan> MakeClosestPlan(const Model& model, const PlanOptions& options) {
  Status status = CheckOptions(options);
  if (!status.ok()) return status;
  status = CheckMicrobatch(model, options);
  if (!status.ok()) return status;
  Plan plan = planner::ChoosePlan(model, options);
#ifndef NDEBUG
  TH_CHECK(ValidatePlan(plan).ok());
#endif
  return plan;
}

Result<Plan> MakePlan(const Model& model, const PlanOptions& options) {
  Result<Plan> plan = MakeClosestPlan(model, options);
  if (plan.ok() && options.budget.has_value()) {
    Status status = CheckBudget(model, *plan, *options.budget);
    if (!status.ok()) return status;
  }
  return plan;
}

}  // namespace thimble
