// SPDX-License-Identifier: Apache-2.0
#include "planner/refuse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "planner/assemble.h"
#include "planner/choose.h"
#include "planner/two_pass.h"
#include "thimble/size.h"

namespace thimble {
namespace {

using planner::Choice;
using planner::Choices;
using planner::FindSmallest;
using planner::MicrobatchSizes;
using planner::Setting;

// As they were given, though the plan may have chosen.
PlanOptions Given(const Choices& choices, const Plan& plan) {
  PlanOptions options = plan.options();
  options.precision = choices.options().precision;
  options.optimizer = choices.options().optimizer;
  options.sparse = choices.options().sparse;
  return options;
}

// What the smallest arena of `setting` over `sizes` takes.
Reach ReachOf(Choices& choices, Freedom freedom, PlanOptions options,
              const Setting& setting, std::span<const int64_t> sizes) {
  const Choice smallest = FindSmallest(choices, options, setting, sizes);
  options.budget = smallest.arena_bytes;
  return {freedom, std::move(options), smallest.arena_bytes,
          smallest.microbatch};
}

// Nothing, where that is no gain.
std::optional<Reach> IfFewerBytes(Reach reach, const Plan& plan) {
  if (reach.arena_bytes >= plan.arena_bytes()) return std::nullopt;
  return reach;
}

std::optional<Reach> WithOneThread(Choices& choices, const Plan& plan) {
  if (plan.options().threads == 1) return std::nullopt;
  PlanOptions options = Given(choices, plan);
  options.threads = 1;
  Setting setting = choices.setting();
  setting.threads = 1;
  return IfFewerBytes(ReachOf(choices, Freedom::kOneThread, options, setting,
                              MicrobatchSizes(choices.model(), options)),
                      plan);
}

std::optional<Reach> WithAuto(Choices& choices, const Plan& plan) {
  if (!plan.options().training || choices.setting().is_auto) {
    return std::nullopt;
  }
  PlanOptions options = Given(choices, plan);
  options.recompute = "auto";
  Setting setting = choices.setting();
  setting.is_auto = true;
  return ReachOf(choices, Freedom::kRecomputation, options, setting,
                 MicrobatchSizes(choices.model(), options));
}

// What smaller microbatches would reach, where the options do not allow them:
// the smallest, which takes the fewest bytes but for oddities of placement. All
// others would take as long to plan, each.
std::optional<Reach> WithMicrobatches(Choices& choices, const Plan& plan) {
  PlanOptions options = Given(choices, plan);
  if (!options.training) return std::nullopt;
  if (options.allow_microbatch && options.microbatch == 0) return std::nullopt;
  options.allow_microbatch = true;
  options.microbatch = 0;
  std::vector<int64_t> sizes = {
      MicrobatchSizes(choices.model(), options).back()};
  // Several microbatches hold all gradients all the time, one does not.
  if (plan.microbatch() != plan.batch()) {
    sizes.insert(sizes.begin(), plan.batch());
  }
  return IfFewerBytes(
      ReachOf(choices, Freedom::kMicrobatch, options, choices.setting(), sizes),
      plan);
}

// What f16 would reach, where tensors are f32 and nothing else is allowed. bf16
// takes the same bytes.
std::optional<Reach> WithPrecision(Choices& choices, const Plan& plan) {
  PlanOptions options = Given(choices, plan);
  if (!options.training || !options.precision.is_f32() ||
      !options.allow_precision.empty()) {
    return std::nullopt;
  }
  options.allow_precision = {{Precision::All(DType::kF16), nullptr}};
  return IfFewerBytes(
      ReachOf(choices, Freedom::kPrecision, options, choices.setting(),
              MicrobatchSizes(choices.model(), options)),
      plan);
}

// Evaluation has no microbatches; its results do not depend on the batch.
std::optional<Reach> WithOneAtATime(Choices& choices, const Plan& plan) {
  PlanOptions options = Given(choices, plan);
  if (options.training || plan.microbatch() == 1) return std::nullopt;
  options.microbatch = 1;
  return ReachOf(choices, Freedom::kOneAtATime, options, choices.setting(),
                 std::vector<int64_t>{1});
}

// To know what they would take, one would plan several times as long.
bool TwoPassesMayHelp(Choices& choices, const Plan& plan) {
  if (!plan.options().training || plan.options().two_pass) return false;
  if (plan.UpdatesInBackward()) return false;  // they read a weight later
  const PlanOptions& made = plan.options();
  const size_t storage =
      choices.StorageAt({{made.precision, made.optimizer}, made.sparse});
  return !planner::FindTwoPassPairs(
              choices.ProgramOf(storage, plan.microbatch()))
              .empty();
}

std::string PeakByRole(const Refusal& refusal) {
  std::string text;
  for (size_t role = 0; role < kRoles; ++role) {
    const size_t bytes = refusal.peak_bytes[role];
    if (bytes == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ",
                        RoleName(static_cast<Role>(role)), FormatBytes(bytes));
  }
  return text;
}

// Both as sizes, or as bytes where they would look alike.
std::string NeedAndBudget(size_t need, uint64_t budget) {
  if (FormatBytes(need) == FormatBytes(budget)) {
    return fmt::format("needs {} bytes, the budget is {} bytes", need, budget);
  }
  return fmt::format("needs {}, the budget is {}", FormatBytesUp(need),
                     FormatBytes(budget));
}

std::string ReachText(const Refusal& refusal, const Reach& reach) {
  const auto would_do = [&](const char* with) {
    return fmt::format("; with {} {} bytes would do", with, reach.arena_bytes);
  };
  switch (reach.freedom) {
    case Freedom::kOneThread:
      return would_do("one thread");
    case Freedom::kRecomputation:
      return would_do("the recomputation strategy auto");
    case Freedom::kMicrobatch:
      return would_do(refusal.options.microbatch > 0
                          ? "allow_microbatch in place of microbatch"
                          : "allow_microbatch") +
             fmt::format(", at microbatch {}", reach.microbatch);
    case Freedom::kPrecision:
      return would_do("f16 in allow_precision") +
             (reach.microbatch == refusal.microbatch
                  ? ""
                  : fmt::format(", at microbatch {}", reach.microbatch));
    case Freedom::kOneAtATime:
      return would_do("one at a time");
  }
  return "";
}

}  // namespace

Refusal planner::ExplainRefusal(Choices& choices, const Plan& plan) {
  Refusal refusal;
  refusal.model = plan.model();
  refusal.batch = plan.batch();
  refusal.microbatch = plan.microbatch();
  refusal.options = plan.options();
  refusal.needed = plan.arena_bytes();
  refusal.budget = *plan.options().budget;
  refusal.peak_op = plan.peak_op().name;
  for (size_t role = 0; role < kRoles; ++role) {
    refusal.peak_bytes[role] = plan.peak_bytes(static_cast<Role>(role));
  }
  for (const auto with : {WithOneThread, WithAuto, WithMicrobatches,
                          WithPrecision, WithOneAtATime}) {
    std::optional<Reach> reach = with(choices, plan);
    if (reach.has_value()) refusal.reaches.push_back(*std::move(reach));
  }
  refusal.two_passes_may_help = TwoPassesMayHelp(choices, plan);
  return refusal;
}

std::string planner::RefusalText(const Refusal& refusal) {
  std::string text = NeedText(refusal);
  for (const Reach& reach : refusal.reaches) text += ReachText(refusal, reach);
  if (refusal.two_passes_may_help) {
    text += "; two_pass may take less, for more work";
  }
  return text;
}

std::string NeedText(const Refusal& refusal) {
  const int threads = refusal.options.threads;
  return fmt::format(
      "the plan of {} at batch {}{} with {} thread{} {}; the peak stands at op "
      "'{}' ({}). The smallest budget that works is {} bytes",
      refusal.model, refusal.batch,
      planner::PassesText(refusal.batch, refusal.microbatch,
                          refusal.options.ghost_batch),
      threads, threads == 1 ? "" : "s",
      NeedAndBudget(refusal.needed, refusal.budget), refusal.peak_op,
      PeakByRole(refusal), refusal.needed);
}

}  // namespace thimble
