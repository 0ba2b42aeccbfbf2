// SPDX-License-Identifier: Apache-2.0
#include "report/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "thimble/report.h"
#include "thimble/size.h"
#include "thimble/text.h"

namespace thimble {
namespace {

using Json = nlohmann::ordered_json;

// The six shares of the contract. They add up to the lower bound.
struct Shares {
  size_t model = 0, optimizer = 0, activation = 0, workspace = 0, input = 0,
         statistics = 0;
};

Shares SharesOf(const Plan& plan) {
  return {
      .model = plan.peak_bytes(Role::kParameter),
      .optimizer = plan.peak_bytes(Role::kGradient) +
                   plan.peak_bytes(Role::kOptimizerState),
      .activation = plan.peak_bytes(Role::kActivation) +
                    plan.peak_bytes(Role::kActivationGradient),
      .workspace = plan.peak_bytes(Role::kWorkspace),
      .input = plan.peak_bytes(Role::kInput),
      .statistics = plan.peak_bytes(Role::kStatistic),
  };
}

// What a step's passes are, where they are not simply the batch.
std::string PassesText(const Plan& plan) {
  std::string text;
  if (plan.microbatches() > 1) {
    text += fmt::format(" in microbatches of {}", plan.microbatch());
  }
  if (plan.options().ghost_batch > 0) {
    text += fmt::format(", ghost batches of {}", plan.options().ghost_batch);
  }
  return text;
}

// What of the memory optimisations is switched off.
std::string AblationNote(const PlanOptions& options) {
  std::string text;
  if (!options.inplace) text += ", nothing in place";
  if (!options.sharing) text += ", no bytes shared over time";
  if (!options.fuse) text += ", nothing fused";
  return text;
}

std::string FormatFlops(double flops) {
  const char* unit = "FLOP";
  for (const char* larger : {"kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"}) {
    if (flops < 1000) break;
    flops /= 1000;
    unit = larger;
  }
  return fmt::format("{:.2f} {}", flops, unit);
}

Json JsonOf(const Plan& plan, std::optional<uint64_t> budget) {
  const Shares shares = SharesOf(plan);
  Json json;
  json["model"] = plan.model();
  json["parameters"] = plan.graph().ParameterCount();
  json["batch"] = plan.batch();
  json["microbatch"] = plan.microbatch();
  const int64_t ghost_batch = plan.options().ghost_batch;
  json["ghost_batch"] = ghost_batch > 0 ? Json(ghost_batch) : Json();
  for (const auto& [name, value] : plan.build_options()) json[name] = value;
  json["precision"] = plan.options().precision.ToString();
  json["target_class"] = TargetClassName(plan.options().target_class);
  json["nonzero"] = 1.0;
  json["checkpoint"] = plan.options().recompute;
  json["inplace"] = plan.options().inplace;
  json["sharing"] = plan.options().sharing;
  json["fuse"] = plan.options().fuse;
  json["two_pass"] = plan.options().two_pass;
  json["threads"] = plan.options().threads;
  json["bytes"] = {{"arena", plan.arena_bytes()},
                   {"lower_bound", plan.lower_bound()},
                   {"model", shares.model},
                   {"optimizer", shares.optimizer},
                   {"activation", shares.activation},
                   {"workspace", shares.workspace},
                   {"input", shares.input},
                   {"statistics", shares.statistics},
                   {"beside_arena", BesideArenaBytes(plan)}};
  json["paper_bytes"] = nullptr;
  json["paper_flops_ratio"] = nullptr;
  if (plan.paper().has_value()) {
    const PaperBytes& bytes = plan.paper()->bytes;
    json["paper_bytes"] = {{"model", bytes.model},
                           {"optimizer", bytes.optimizer},
                           {"activation", bytes.activation},
                           {"total", bytes.total}};
    json["paper_flops_ratio"] = plan.paper()->flops_ratio;
  }
  json["flops"] = {{"step", plan.flops_step()},
                   {"recompute", plan.flops_recompute()},
                   {"ratio", report::FlopsRatio(plan)}};
  json["peak_op"] = plan.peak_op().name;
  json["fits"] = !budget.has_value() || plan.arena_bytes() <= *budget;
  return json;
}

}  // namespace

std::vector<const Buffer*> report::LiveAtPeak(const Plan& plan) {
  const uint32_t peak = plan.peak_time();
  std::vector<const Buffer*> live;
  for (const Buffer& b : plan.buffers()) {
    if (b.live.begin <= peak && peak < b.live.end) live.push_back(&b);
  }
  std::stable_sort(
      live.begin(), live.end(),
      [](const Buffer* a, const Buffer* b) { return a->bytes > b->bytes; });
  return live;
}

double report::FlopsRatio(const Plan& plan) {
  const auto step = static_cast<double>(plan.flops_step());
  const auto recompute = static_cast<double>(plan.flops_recompute());
  return step > 0 ? step / (step - recompute) : 1.0;
}

std::string report::FlopsText(const Plan& plan) {
  const auto step = static_cast<double>(plan.flops_step());
  return fmt::format("{} per step, {} per {}", FormatFlops(step),
                     FormatFlops(step / static_cast<double>(plan.batch())),
                     plan.graph().axes()[kBatchAxis.index()].Unit());
}

std::string PlanJson(const Plan& plan, std::optional<uint64_t> budget) {
  return JsonOf(plan, budget).dump();
}

std::string PlanJson(const Plan& plan, std::optional<uint64_t> budget,
                     std::span<const TradeOff> trade_offs,
                     std::span<const std::string> options) {
  TH_CHECK(options.size() == trade_offs.size());
  Json json = JsonOf(plan, budget);
  json["trade_offs"] = Json::array();
  for (size_t i = 0; i < trade_offs.size(); ++i) {
    json["trade_offs"].push_back({{"arena", trade_offs[i].arena_bytes},
                                  {"flops_step", trade_offs[i].flops_step},
                                  {"options", options[i]}});
  }
  return json.dump();
}

std::string PlanTable(const Plan& plan) {
  const Shares shares = SharesOf(plan);
  const double gap = 100.0 * (static_cast<double>(plan.arena_bytes()) /
                                  static_cast<double>(plan.lower_bound()) -
                              1.0);
  std::string text = fmt::format(
      "{}: {} parameters, batch {}{}, {}, {} thread{}{}\n\n",
      Printable(plan.model()), plan.graph().ParameterCount(), plan.batch(),
      PassesText(plan), plan.options().precision.ToString(),
      plan.options().threads, plan.options().threads == 1 ? "" : "s",
      AblationNote(plan.options()));
  text += fmt::format("  {:<30} {:>12}\n", "arena (all that is allocated)",
                      FormatBytesUp(plan.arena_bytes()));
  text += fmt::format("  {:<30} {:>12}\n", "process beside it, at most",
                      FormatBytesUp(BesideArenaBytes(plan)));
  text += fmt::format("  {:<30} {:>12}   (arena +{:.2f}%)\n",
                      "lower bound (most live)",
                      FormatBytesUp(plan.lower_bound()), gap);
  const std::pair<const char*, size_t> rows[] = {
      {"model", shares.model},           {"optimizer", shares.optimizer},
      {"activation", shares.activation}, {"workspace", shares.workspace},
      {"input", shares.input},           {"statistics", shares.statistics}};
  text += fmt::format("\n  at the peak, op '{}':\n",
                      Printable(plan.peak_op().name));
  for (const auto& [name, bytes] : rows) {
    text +=
        fmt::format("    {:<26} {:>12} {:>5.1f}%\n", name, FormatBytes(bytes),
                    100.0 * static_cast<double>(bytes) /
                        static_cast<double>(plan.lower_bound()));
  }
  const std::vector<const Buffer*> live = report::LiveAtPeak(plan);
  text += "\n  largest buffers there:\n";
  for (size_t i = 0; i < std::min<size_t>(5, live.size()); ++i) {
    text += fmt::format("    {:<26} {:>12}   {}\n", Printable(live[i]->name),
                        FormatBytes(live[i]->bytes), RoleName(live[i]->role));
  }
  // Nobody asked for it: it belongs to the way in which the ops are fused.
  const bool by_itself =
      plan.options().recompute == "none" && plan.flops_recompute() > 0;
  text += fmt::format(
      "\n  {}, forward and backward; {:.3f} times as many as with nothing "
      "computed twice (checkpoint {}{})\n",
      report::FlopsText(plan), report::FlopsRatio(plan),
      plan.options().recompute,
      by_itself ? "; fused ops do a little of it again in backward" : "");
  return text;
}

}  // namespace thimble
