// SPDX-License-Identifier: Apache-2.0
//
// What is said where nothing fits the budget: the peak, and budgets that do.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "planner/assemble.h"
#include "planner/choose.h"
#include "planner/two_pass.h"
#include "thimble/plan.h"
#include "thimble/size.h"

namespace thimble {
namespace {

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

// The plan with the fewest bytes.
Plan SmallestPlan(const Model& model, PlanOptions options) {
  options.budget = 0;
  return planner::ChoosePlan(model, options);
}

std::string WithOneThread(const Model& model, const Plan& plan) {
  if (plan.options().threads == 1) return "";
  PlanOptions options = plan.options();
  options.threads = 1;
  const size_t bytes = SmallestPlan(model, options).arena_bytes();
  if (bytes >= plan.arena_bytes()) return "";
  return fmt::format(", with --threads 1 it is {} bytes", bytes);
}

std::string WithAuto(const Model& model, const Plan& plan) {
  if (plan.options().checkpoint == "auto") return "";
  PlanOptions options = plan.options();
  options.checkpoint = "auto";
  return fmt::format(", with --checkpoint auto it is {} bytes",
                     SmallestPlan(model, options).arena_bytes());
}

// Without a number: to plan with it takes several times as long.
std::string WithTwoPasses(const Model& model, const Plan& plan) {
  if (plan.options().two_pass) return "";
  const planner::Program program =
      planner::MakeProgram(model, plan.options(), plan.microbatch());
  if (planner::FindTwoPassPairs(program).empty()) return "";
  return "; --two-pass on may take less, for more work";
}

// Evaluation has no microbatches; its results do not depend on the batch.
std::string WithOneImage(const Model& model, const Plan& plan) {
  if (plan.microbatch() == 1) return "";
  PlanOptions options = plan.options();
  options.microbatch = 1;
  return fmt::format(", with --batch 1 it is {} bytes",
                     SmallestPlan(model, options).arena_bytes());
}

// What smaller microbatches would reach, where the options do not allow them:
// the smallest, which takes the fewest bytes but for oddities of placement. All
// others would take as long to plan, each.
std::string WithMicrobatches(const Model& model, const Plan& plan) {
  PlanOptions options = plan.options();
  if (options.allow_microbatch && options.microbatch == 0) return "";
  options.allow_microbatch = true;
  options.microbatch = 0;
  options.budget = 0;
  options.microbatch = planner::MicrobatchSizes(model, options).back();
  Plan smallest = SmallestPlan(model, options);
  // Several microbatches hold all gradients all the time, one does not.
  if (plan.microbatch() != plan.batch()) {
    options.microbatch = plan.batch();
    Plan whole = SmallestPlan(model, options);
    if (whole.arena_bytes() <= smallest.arena_bytes()) {
      smallest = std::move(whole);
    }
  }
  if (smallest.arena_bytes() >= plan.arena_bytes()) return "";
  return fmt::format(
      "; with --allow microbatch{} it is {} bytes, at microbatch {}",
      plan.options().microbatch > 0 ? " in place of --microbatch" : "",
      smallest.arena_bytes(), smallest.microbatch());
}

// Both as sizes, or as bytes where they would look alike.
std::string NeedAndBudget(size_t need, uint64_t budget) {
  if (FormatBytes(need) == FormatBytes(budget)) {
    return fmt::format("needs {} bytes, the budget is {} bytes", need, budget);
  }
  return fmt::format("needs {}, the budget is {}", FormatBytesUp(need),
                     FormatBytes(budget));
}

}  // namespace

Status CheckBudget(const Model& model, const Plan& plan, uint64_t budget) {
  if (plan.arena_bytes() <= budget) return Status::Ok();
  const int threads = plan.options().threads;
  std::string message = fmt::format(
      "the plan of {} at batch {}{} with {} thread{} {}; the peak stands at op "
      "'{}' ({}). The smallest budget that works is {} bytes",
      plan.model(), plan.batch(), planner::PassesText(plan), threads,
      threads == 1 ? "" : "s", NeedAndBudget(plan.arena_bytes(), budget),
      plan.peak_op().name, PeakByRole(plan), plan.arena_bytes());
  message += WithOneThread(model, plan);
  if (!plan.options().training) {
    return Status::Failed(message + WithOneImage(model, plan));
  }
  message += WithAuto(model, plan);
  message += WithMicrobatches(model, plan);
  return Status::Failed(message + WithTwoPasses(model, plan));
}

}  // namespace thimble
