// SPDX-License-Identifier: Apache-2.0
#include "thimble/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/parallel.h"
#include "graph/op.h"
#include "planner/buffers.h"
#include "planner/checkpoint/checkpoint.h"
#include "planner/checkpoint/strategy.h"
#include "planner/fuse.h"
#include "planner/paper.h"
#include "planner/place/place.h"
#include "planner/program.h"
#include "planner/rebatch.h"
#include "planner/schedule.h"
#include "thimble/size.h"

namespace thimble {
namespace {

using planner::BufferRequest;

// The largest divisor of `batch` up to `most`.
int64_t DivisorUpTo(int64_t batch, int64_t most) {
  int64_t divisor = std::clamp<int64_t>(most, 1, batch);
  while (batch % divisor != 0) --divisor;
  return divisor;
}

int64_t MicrobatchOf(const Model& model, const PlanOptions& options) {
  return options.microbatch > 0 ? options.microbatch : model.batch();
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

Status CheckMicrobatch(const Model& model, const PlanOptions& options) {
  Status status =
      CheckDivides("microbatch", options.microbatch, "batch", model.batch());
  if (!status.ok()) return status;
  return CheckDivides("ghost batch", options.ghost_batch,
                      options.microbatch > 0 ? "microbatch" : "batch",
                      MicrobatchOf(model, options));
}

Status CheckOptions(const PlanOptions& options) {
  if (options.threads < 1 || options.threads > ThreadPool::kMaxThreads) {
    return Status::Usage(fmt::format("threads must be between 1 and {}, got {}",
                                     ThreadPool::kMaxThreads, options.threads));
  }
  const OptimizerSpec& o = options.optimizer;
  if (!(o.momentum >= 0.0f && o.momentum < 1.0f)) {
    return Status::Usage(
        fmt::format("momentum must be in [0, 1), got {}", o.momentum));
  }
  if (!(o.weight_decay >= 0.0f) || !std::isfinite(o.weight_decay)) {
    return Status::Usage(
        fmt::format("weight decay must be >= 0, got {}", o.weight_decay));
  }
  if (o.nesterov && o.momentum == 0.0f) {
    return Status::Usage("Nesterov's step needs a momentum above 0");
  }
  return planner::ParseStrategy(options.checkpoint).status();
}

// Live bytes by role at the moment with most of them.
void FindPeak(PlanParts& parts) {
  const auto end = static_cast<uint32_t>(parts.schedule.size());
  std::vector<int64_t> change(end + 1, 0);
  for (const Buffer& b : parts.buffers) {
    change[b.live.begin] += static_cast<int64_t>(b.bytes);
    change[b.live.end] -= static_cast<int64_t>(b.bytes);
  }
  int64_t live = 0;
  int64_t most = -1;
  for (uint32_t t = 0; t < end; ++t) {
    live += change[t];
    if (live > most) {
      most = live;
      parts.peak_time = t;
    }
  }
  for (const Buffer& b : parts.buffers) {
    if (b.live.begin <= parts.peak_time && parts.peak_time < b.live.end) {
      parts.peak_bytes[static_cast<size_t>(b.role)] += b.bytes;
      parts.lower_bound += b.bytes;
    }
  }
  TH_CHECK(static_cast<int64_t>(parts.lower_bound) == most);
}

// REQUIRES: CheckOptions and CheckMicrobatch accept the options.
Plan Build(const Model& whole, const PlanOptions& options) {
  const planner::Strategy strategy =
      *planner::ParseStrategy(options.checkpoint);
  const Model model = planner::Rebatch(whole, MicrobatchOf(whole, options));
  PlanParts parts;
  parts.model = model.name;
  parts.options = options;
  parts.options.checkpoint = strategy.name;
  parts.batch = whole.batch();
  parts.microbatch = model.batch();
  parts.dropout = model.dropout;
  const int64_t passes = parts.batch / parts.microbatch;
  planner::LoweredProgram lowered = planner::ApplyStrategy(
      planner::Differentiate(options.fuse ? planner::Fuse(model) : model,
                             options, passes),
      strategy, options);
  planner::Program& program = lowered.program;
  parts.schedule = planner::MakeSchedule(program);
  planner::BufferSet set =
      planner::MakeBuffers(program, options, parts.schedule);
  if (!lowered.placement.has_value()) {
    std::vector<BufferRequest> requests;
    for (const Buffer& b : set.buffers) requests.push_back({b.live, b.bytes});
    lowered.placement = planner::PlacePortfolio(requests);
  }
  const planner::Placement& placement = *lowered.placement;
  for (size_t i = 0; i < set.buffers.size(); ++i) {
    set.buffers[i].offset = placement.offsets[i];
  }
  parts.buffers = std::move(set.buffers);
  parts.buffer_of = std::move(set.buffer_of);
  parts.carried = std::move(set.carried);
  parts.arena_bytes = placement.bytes;
  parts.train = program.train;
  parts.evaluate = program.evaluate;
  parts.parameters = std::move(program.parameters);
  parts.statistics = std::move(program.statistics);
  parts.graph = std::move(program.graph);
  FindPeak(parts);
  const planner::FlopCount flops =
      planner::CountFlops(parts.graph, parts.schedule);
  parts.flops_step = flops.step * passes;
  parts.flops_recompute = flops.recompute * passes;
  parts.paper = planner::PaperAccounting(model, options.optimizer, strategy);
  return Plan(std::move(parts));
}

// What a step's passes are, where they are not simply the batch.
std::string PassesText(const Plan& plan) {
  std::string text;
  if (plan.microbatches() > 1) {
    text += fmt::format(" microbatch {}", plan.microbatch());
  }
  if (plan.options().ghost_batch > 0) {
    text += fmt::format(" ghost-batch {}", plan.options().ghost_batch);
  }
  return text;
}

// What of the memory optimisations is switched off.
std::string AblationText(const PlanOptions& options) {
  std::string text;
  if (!options.inplace) text += " inplace off";
  if (!options.sharing) text += " sharing off";
  if (!options.fuse) text += " fuse off";
  return text;
}

std::string PeakByRole(const Plan& plan) {
  std::string text;
  for (size_t role = 0; role < kRoles; ++role) {
    const size_t bytes = plan.peak_bytes(static_cast<Role>(role));
    if (bytes == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ",
                        RoleName(static_cast<Role>(role)), FormatBytes(bytes));
  }
  return text;
}

}  // namespace

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kMicrobatch:
      return "microbatch";
    case Phase::kUpdate:
      return "update";
    case Phase::kEvaluate:
      return "evaluate";
  }
  return "?";
}

const Op& Plan::peak_op() const {
  return parts_.graph.op(parts_.schedule[parts_.peak_time].op);
}

const Buffer& Plan::BufferOf(ValueId v) const {
  return parts_.buffers[parts_.buffer_of[v.i]];
}

std::string Plan::Explain() const {
  std::string text = fmt::format(
      "plan {} batch {}{} threads {}{}{}\narena {} lower_bound {} peak '{}' "
      "at {}\n",
      parts_.model, parts_.batch, PassesText(*this), parts_.options.threads,
      parts_.options.checkpoint == "none"
          ? ""
          : " checkpoint " + parts_.options.checkpoint,
      AblationText(parts_.options),
      parts_.arena_bytes, parts_.lower_bound, peak_op().name, parts_.peak_time);
  for (size_t role = 0; role < kRoles; ++role) {
    text += fmt::format("  {:<20} {}\n", RoleName(static_cast<Role>(role)),
                        parts_.peak_bytes[role]);
  }
  text += "schedule\n";
  for (size_t t = 0; t < parts_.schedule.size(); ++t) {
    const ScheduledOp& s = parts_.schedule[t];
    const Op& op = parts_.graph.op(s.op);
    text += fmt::format("  {:4} {:<10} {} {}\n", t, PhaseName(s.phase),
                        op.def->name(), op.name);
  }
  text += "buffers\n";
  for (const Buffer& b : parts_.buffers) {
    text += fmt::format("  {:>9}+{:<9} [{}, {}) {} {}\n", b.offset, b.bytes,
                        b.live.begin, b.live.end, RoleName(b.role), b.name);
  }
  return text;
}

Status CheckBudget(const Model& model, const Plan& plan, uint64_t budget) {
  if (plan.arena_bytes() <= budget) return Status::Ok();
  const int threads = plan.options().threads;
  std::string message = fmt::format(
      "the plan of {} at batch {}{} with {} thread{} needs {}, the budget is "
      "{}; the peak stands at op '{}' ({}). The smallest budget that works is "
      "{} bytes",
      plan.model(), plan.batch(), PassesText(plan), threads,
      threads == 1 ? "" : "s", FormatBytesUp(plan.arena_bytes()),
      FormatBytes(budget), plan.peak_op().name, PeakByRole(plan),
      plan.arena_bytes());
  const auto smallest = [&](int with_threads, const char* strategy) {
    PlanOptions other = plan.options();
    other.threads = with_threads;
    other.checkpoint = strategy;
    other.budget = 0;  // of `auto`, what takes the fewest bytes
    return Build(model, other).arena_bytes();
  };
  const std::string& strategy = plan.options().checkpoint;
  if (threads > 1) {
    message += fmt::format(", with --threads 1 it is {} bytes",
                           smallest(1, strategy.c_str()));
  }
  if (plan.options().training && strategy != "auto") {
    message += fmt::format(", with --checkpoint auto it is {} bytes",
                           smallest(threads, "auto"));
  }
  return Status::Failed(message + (plan.microbatch() > 1
                                       ? "; a smaller --microbatch takes less"
                                       : ""));
}

Result<Plan> MakeClosestPlan(const Model& model, const PlanOptions& options) {
  Status status = CheckOptions(options);
  if (!status.ok()) return status;
  status = CheckMicrobatch(model, options);
  if (!status.ok()) return status;
  Plan plan = Build(model, options);
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
