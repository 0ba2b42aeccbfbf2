// SPDX-License-Identifier: Apache-2.0
//
// PlanSearch and MakePlan: options are checked, then a plan is chosen.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/parallel.h"
#include "planner/batch_statistics.h"
#include "planner/choices.h"
#include "planner/choose.h"
#include "planner/fold_gradients.h"
#include "planner/recompute/strategy.h"
#include "planner/refuse.h"
#include "planner/sparse_pool.h"
#include "planner/trade_offs.h"
#include "thimble/plan.h"
#include "thimble/plan_search.h"

namespace thimble {
namespace {

// The largest divisor of `batch` up to `most`.
int64_t DivisorUpTo(int64_t batch, int64_t most) {
  int64_t divisor = std::clamp<int64_t>(most, 1, batch);
  while (batch % divisor != 0) --divisor;
  return divisor;
}

// A number of `units` of the batch's axis, under the name that it has.
struct Part {
  const char* name;
  int64_t units;
};

Status CheckDivides(const Part& part, const Part& whole, const Axis& axis) {
  if (part.units >= 0 && part.units <= whole.units &&
      (part.units == 0 || whole.units % part.units == 0)) {
    return Status::Ok();
  }
  return Status::Usage(
      fmt::format("a {} of {} does not divide the {} of {}; {} would",
                  part.name, axis.Counted(part.units), whole.name, whole.units,
                  DivisorUpTo(whole.units, part.units)));
}

// What a batch is counted along.
const Axis& AxisOf(const Model& model) {
  return model.graph.axes()[kBatchAxis.index()];
}

// What is asked for and would change nothing is mostly a mistake.
Status CheckHasEffect(const Model& model, const PlanOptions& options) {
  if (options.min_microbatch > 0 && !options.allow_microbatch) {
    return Status::Usage(fmt::format(
        "a smallest microbatch of {} has no effect where the budget may not "
        "choose the microbatch; add PlanOptions::allow_microbatch, or leave "
        "out PlanOptions::min_microbatch",
        options.min_microbatch));
  }
  if (options.ghost_batch > 0 && !planner::HasBatchNorm(model)) {
    return Status::Usage(fmt::format(
        "a ghost batch of {} has no effect on {}, which has no batch norms; "
        "leave out PlanOptions::ghost_batch",
        AxisOf(model).Counted(options.ghost_batch), model.name));
  }
  return Status::Ok();
}

Status CheckMicrobatch(const Model& model, const PlanOptions& options) {
  const Axis& axis = AxisOf(model);
  const Part batch{"batch", model.batch()};
  const Part microbatch{"microbatch", options.microbatch};
  Status status = CheckDivides(microbatch, batch, axis);
  if (!status.ok()) return status;
  if (options.min_microbatch < 0 || options.min_microbatch > model.batch()) {
    return Status::Usage(fmt::format(
        "the smallest microbatch allowed must be between 1 and the batch of "
        "{}, got {}",
        model.batch(), options.min_microbatch));
  }
  status = CheckHasEffect(model, options);
  if (!status.ok()) return status;
  status = CheckDivides({"ghost batch", options.ghost_batch},
                        microbatch.units > 0 ? microbatch : batch, axis);
  return status.ok() ? planner::CheckStatistics(model, options) : status;
}

Status CheckOptions(const PlanOptions& options) {
  if (options.threads < 1 || options.threads > ThreadPool::kMaxThreads) {
    return Status::Usage(fmt::format("threads must be between 1 and {}, got {}",
                                     ThreadPool::kMaxThreads, options.threads));
  }
  TH_RETURN_IF_ERROR(options.precision.Check());
  for (const PrecisionChoice& choice : options.allow_precision) {
    TH_RETURN_IF_ERROR(choice.precision.Check());
    if (choice.optimizer == nullptr) continue;
    TH_RETURN_IF_ERROR(choice.optimizer->Check());
  }
  Status optimizer = options.optimizer->Check();
  if (!optimizer.ok()) return optimizer;
  for (size_t i = 0; i < options.allow_nonzero.size(); ++i) {
    const double share = options.allow_nonzero[i];
    // Also refuses what is no number.
    if (share > 0 && share < (i > 0 ? options.allow_nonzero[i - 1] : 1.0)) {
      continue;
    }
    return Status::Usage(fmt::format(
        "PlanOptions::allow_nonzero goes down, between 1 and 0; {} does not",
        share));
  }
  return planner::ParseStrategy(options.recompute).status();
}

}  // namespace

struct PlanSearch::State {
  State(const Model& model, const PlanOptions& options)
      : choices(model, options), plan(planner::ChoosePlan(choices)) {}

  planner::Choices choices;
  Plan plan;
};

PlanSearch::PlanSearch(std::unique_ptr<State> state)
    : state_(std::move(state)) {}
PlanSearch::PlanSearch(PlanSearch&& other) noexcept = default;
PlanSearch& PlanSearch::operator=(PlanSearch&& other) noexcept = default;
PlanSearch::~PlanSearch() = default;

Result<PlanSearch> PlanSearch::Create(const Model& model,
                                      const PlanOptions& options) {
  Status status = CheckOptions(options);
  if (status.ok() && options.training && !model.ends.loss.valid()) {
    status =
        Status::Usage(fmt::format("{} has no loss to be trained by, so only "
                                  "its evaluation can be planned",
                                  model.name));
  }
  if (!status.ok()) return status;
  status = CheckMicrobatch(model, options);
  if (!status.ok()) return status;
  TH_RETURN_IF_ERROR(planner::CheckGradients(model, options));
  PlanOptions sparse = options;
  if (options.allow_nonzero.empty() || !options.sparse.is_dense()) {
    TH_RETURN_IF_ERROR(planner::CheckSparse(model, options));
  }
  for (double nonzero : options.allow_nonzero) {
    sparse.sparse.nonzero = nonzero;
    TH_RETURN_IF_ERROR(planner::CheckSparse(model, sparse));
  }
  PlanSearch search(std::make_unique<State>(model, options));
  TH_RETURN_IF_ERROR(planner::CheckReadsBeforeUpdates(search.plan()));
#ifndef NDEBUG
  TH_CHECK(ValidatePlan(search.plan()).ok());
#endif
  return search;
}

const Plan& PlanSearch::plan() const { return state_->plan; }

bool PlanSearch::fits() const {
  const std::optional<uint64_t> budget = state_->plan.options().budget;
  return !budget.has_value() || state_->plan.arena_bytes() <= *budget;
}

Plan PlanSearch::Take() && {
  const std::unique_ptr<State> state = std::move(state_);
  return std::move(state->plan);
}

std::vector<TradeOff> PlanSearch::TradeOffs() {
  return planner::FindTradeOffs(state_->choices, state_->plan);
}

Refusal PlanSearch::Explain() {
  TH_CHECK(!fits());
  return planner::ExplainRefusal(state_->choices, state_->plan);
}

Status PlanSearch::CheckBudget() {
  if (fits()) return Status::Ok();
  return Status::Failed(planner::RefusalText(Explain()));
}

Result<Plan> MakePlan(const Model& model, const PlanOptions& options) {
  Result<PlanSearch> search = PlanSearch::Create(model, options);
  if (!search.ok()) return search.status();
  const Status status = search->CheckBudget();
  if (!status.ok()) return status;
  return std::move(*search).Take();
}

}  // namespace thimble
