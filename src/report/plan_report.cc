// SPDX-License-Identifier: Apache-2.0
#include "report/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "report/json_object.h"
#include "thimble/report.h"
#include "thimble/size.h"
#include "thimble/text.h"

namespace thimble {
namespace {

using report::JsonObject;

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

JsonObject BytesOf(const Plan& plan) {
  const Shares shares = SharesOf(plan);
  JsonObject bytes;
  bytes.Add("arena", plan.arena_bytes());
  bytes.Add("lower_bound", plan.lower_bound());
  bytes.Add("model", shares.model);
  bytes.Add("optimizer", shares.optimizer);
  bytes.Add("activation", shares.activation);
  bytes.Add("workspace", shares.workspace);
  bytes.Add("input", shares.input);
  bytes.Add("statistics", shares.statistics);
  bytes.Add("beside_arena", BesideArenaBytes(plan));
  return bytes;
}

void AddPaper(const Plan& plan, JsonObject& json) {
  if (!plan.paper().has_value()) {
    json.AddNull("paper_bytes");
    json.AddNull("paper_flops_ratio");
    return;
  }
  const PaperBytes& paper = plan.paper()->bytes;
  JsonObject bytes;
  bytes.Add("model", paper.model);
  bytes.Add("optimizer", paper.optimizer);
  bytes.Add("activation", paper.activation);
  bytes.Add("total", paper.total);
  json.Add("paper_bytes", bytes);
  json.Add("paper_flops_ratio", plan.paper()->flops_ratio);
}

void AddSparse(const Plan& plan, JsonObject& json) {
  if (!plan.sparse().has_value()) {
    json.AddNull("sparse");
    return;
  }
  const SparsePool& pool = *plan.sparse();
  const WeightBlock& block = pool.layout.block();
  JsonObject sparse;
  sparse.Add("pattern", fmt::format("{}x{}", block.outputs, block.inputs));
  sparse.Add("index", IndexCodecName(pool.layout.codec()));
  sparse.Add("index_bytes", pool.layout.index_bytes());
  sparse.Add("kept_blocks", pool.layout.kept());
  JsonObject weights;
  for (const uint32_t m : pool.members) {
    const Value& weight = plan.graph().value(plan.parameters()[m].parameter);
    weights.Add(weight.name, weight.spec.storage.sparsity->kept);
  }
  sparse.Add("weights", weights);
  json.Add("sparse", sparse);
}

// "30% nonzero in blocks of 2x2, index of 181.44 kB (bitmap)"
std::string SparseText(const Plan& plan) {
  if (!plan.sparse().has_value()) return "";
  const PoolLayout& layout = plan.sparse()->layout;
  const WeightBlock& block = layout.block();
  const std::string blocks =
      block.values() == 1
          ? ""
          : fmt::format(" in blocks of {}x{}", block.outputs, block.inputs);
  return fmt::format(
      "\n  {} of {} weights keep {:g}% of their elements{}; index {}, {}\n",
      plan.sparse()->members.size(), plan.parameters().size(),
      100.0 * plan.options().sparse.nonzero, blocks,
      IndexCodecName(layout.codec()), FormatBytesUp(layout.index_bytes()));
}

JsonObject JsonOf(const Plan& plan, std::optional<uint64_t> budget) {
  const PlanOptions& options = plan.options();
  JsonObject json;
  json.Add("model", plan.model());
  json.Add("parameters", plan.ParameterCount());
  json.Add("batch", plan.batch());
  json.Add("microbatch", plan.microbatch());
  if (options.ghost_batch > 0) {
    json.Add("ghost_batch", options.ghost_batch);
  } else {
    json.AddNull("ghost_batch");
  }
  for (const auto& [name, value] : plan.build_options()) json.Add(name, value);
  json.Add("precision", options.precision.ToString());
  json.Add("target_class", TargetClassName(options.target_class));
  json.Add("nonzero", options.sparse.nonzero);
  AddSparse(plan, json);
  json.Add("checkpoint", options.recompute);
  json.Add("inplace", options.inplace);
  json.Add("sharing", options.sharing);
  json.Add("fuse", options.fuse);
  json.Add("two_pass", options.two_pass);
  json.Add("threads", options.threads);
  json.Add("bytes", BytesOf(plan));
  AddPaper(plan, json);
  JsonObject flops;
  flops.Add("step", plan.flops_step());
  flops.Add("recompute", plan.flops_recompute());
  flops.Add("ratio", report::FlopsRatio(plan));
  json.Add("flops", flops);
  json.Add("peak_op", plan.peak_op().name);
  json.Add("fits", report::Fits(plan, budget));
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

bool report::Fits(const Plan& plan, std::optional<uint64_t> budget) {
  return !budget.has_value() || plan.arena_bytes() <= *budget;
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
  return JsonOf(plan, budget).Text();
}

std::string PlanJson(const Plan& plan, std::optional<uint64_t> budget,
                     std::span<const TradeOff> trade_offs,
                     std::span<const std::string> options) {
  TH_CHECK(options.size() == trade_offs.size());
  std::string trades;
  for (size_t i = 0; i < trade_offs.size(); ++i) {
    JsonObject trade;
    trade.Add("arena", trade_offs[i].arena_bytes);
    trade.Add("flops_step", trade_offs[i].flops_step);
    trade.Add("options", options[i]);
    trades += (i > 0 ? "," : "") + trade.Text();
  }
  JsonObject json = JsonOf(plan, budget);
  json.AddRaw("trade_offs", "[" + trades + "]");
  return json.Text();
}

// What tensors are stored in; the optimizer's state where it is not stored as
// the weight is.
std::string StorageText(const Plan& plan) {
  const Precision& precision = plan.options().precision;
  const auto settings = plan.optimizer().Settings();
  const auto state = settings.find("optimizer state");
  return precision.ToString() +
         (state == settings.end() ||
                  state->second == DTypeName(precision.parameters)
              ? ""
              : ", optimizer state " + state->second);
}

std::string PlanTable(const Plan& plan) {
  const Shares shares = SharesOf(plan);
  const double gap = 100.0 * (static_cast<double>(plan.arena_bytes()) /
                                  static_cast<double>(plan.lower_bound()) -
                              1.0);
  std::string text = fmt::format(
      "{}: {} parameters, batch {}{}, {}, {} thread{}{}\n\n",
      Printable(plan.model()), plan.ParameterCount(), plan.batch(),
      PassesText(plan), StorageText(plan), plan.options().threads,
      plan.options().threads == 1 ? "" : "s", AblationNote(plan.options()));
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
  text += SparseText(plan);
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
