// SPDX-License-Identifier: Apache-2.0
//
// How long planning takes: some networks, with and without a budget. Planning
// is one thread's work, so its CPU time is taken, the best of several runs.
#include "thimble/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "clock.h"
#include "thimble/model.h"
#include "thimble/plan_search.h"
#include "thimble/size.h"

namespace thimble::bench {
namespace {

struct Case {
  const char* name;
  int64_t batch;
  const char* strategy;  // by name, beside none and auto
};

constexpr Case kCases[] = {{"wrn-28-2", 100, "residual-2*"},
                           {"resnet-110", 100, "residual-2*"},
                           {"resnet-1001", 10, "residual-2*"},
                           {"lstm-1-128-1000", 32, "sqrt"},
                           {"lstm-4-1024-1000", 64, "sqrt"}};

Model ModelOf(const Case& network) {
  // A sequence has to divide the image's bytes.
  const bool is_sequence = std::string_view(network.name).starts_with("lstm");
  const ImageLayer images =
      is_sequence ? ImageLayer{.channels = 1, .height = 40, .width = 25}
                  : ImageLayer{.channels = 3, .height = 32, .width = 32};
  Result<Model> model =
      BuildModel(network.name, {.batch = network.batch, .images = images});
  if (!model.ok()) {
    fmt::print(stderr, "{}\n", model.status().message());
    std::exit(1);
  }
  return *std::move(model);
}

// The plan alone, or as the tool does it, with the advice that a refusal
// carries.
enum class Ask { kClosest, kRefusal };

double SecondsOnce(const Model& model, const PlanOptions& options, Ask ask,
                   std::optional<Plan>& plan) {
  const double begin = Now(/*cpu=*/true);
  Result<PlanSearch> search = PlanSearch::Create(model, options);
  if (ask == Ask::kRefusal) (void)search->Explain();
  plan = std::move(*search).Take();
  return Now(/*cpu=*/true) - begin;
}

// Three runs, and more of what is quick.
Plan Report(const Model& model, PlanOptions options, const char* budget,
            Ask ask = Ask::kClosest) {
  constexpr int kLeastRuns = 3;
  constexpr double kSeconds = 1;
  std::optional<Plan> plan;
  double best = SecondsOnce(model, options, ask, plan);
  double all = best;
  for (int run = 1; run < kLeastRuns || all < kSeconds; ++run) {
    const double seconds = SecondsOnce(model, options, ask, plan);
    best = std::min(best, seconds);
    all += seconds;
  }
  const auto step = static_cast<double>(plan->flops_step());
  const auto again = static_cast<double>(plan->flops_recompute());
  fmt::print("{:<18} {:<11} {:<9} {:>10} {:>7.3f} {:>10.1f}\n", model.name,
             options.recompute, budget, FormatBytes(plan->arena_bytes()),
             step / (step - again), 1e3 * best);
  return *std::move(plan);
}

void Run(const Case& network) {
  const Model model = ModelOf(network);
  PlanOptions options{.threads = 2};
  const uint64_t most = Report(model, options, "-").arena_bytes();
  options.recompute = network.strategy;
  Report(model, options, "-");
  options.recompute = "auto";
  options.budget = 0;
  const uint64_t least =
      Report(model, options, "refused", Ask::kRefusal).arena_bytes();
  const struct {
    const char* name;
    uint64_t bytes;
  } budgets[] = {
      {"smallest", least}, {"middle", (least + most) / 2}, {"large", most}};
  for (const auto& [name, bytes] : budgets) {
    options.budget = bytes;
    Report(model, options, name);
  }
}

}  // namespace
}  // namespace thimble::bench

int main(int argc, char** argv) {
  fmt::print("{:<18} {:<11} {:<9} {:>10} {:>7} {:>10}\n", "network",
             "checkpoint", "budget", "arena", "FLOPs", "ms");
  for (const auto& network : thimble::bench::kCases) {
    const std::string_view name = network.name;
    if (argc > 1 && name.find(argv[1]) == std::string_view::npos) continue;
    thimble::bench::Run(network);
  }
  return 0;
}
