// SPDX-License-Identifier: Apache-2.0
//
// bench_kernels: every kernel family on the shapes of real networks, beside
// oneDNN where it has the same, and beside what the machine's arithmetic and
// memory allow. Google Benchmark drives it: all that is timed takes turns, in
// random order, so that what else runs on the machine meets everything.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fma_peak.h"
#include "kernels/cases.h"
#include "kernels/table.h"
#include "memory_traffic.h"

namespace thimble::bench {
namespace {

struct Options {
  int threads = 1;
  bool quick = false;
  std::string filter;  // only cases that match it; bounds always
  std::vector<std::string> rest;
};

// The largest difference relative to the results' root mean square.
double Difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size() || b.empty()) return INFINITY;
  double worst = 0.0, square = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(difference <= worst)) worst = difference;  // NaN as well
    square += static_cast<double>(b[i]) * b[i];
  }
  return worst / std::sqrt(square / static_cast<double>(a.size()));
}

// Before a case is timed, its sides are held against the first one.
std::string Disagreement(const Case& c, Side& side) {
  constexpr double kTolerance = 1e-3;
  std::unique_ptr<Side> first;
  try {
    first = c.sides[0].make();
  } catch (const std::exception&) {
    return "";  // its own benchmark tells
  }
  first->Run();
  side.Run();
  const double difference = Difference(side.Result(), first->Result());
  if (difference < kTolerance) return "";
  return fmt::format("disagrees with {} by {:.3g} of the root mean square",
                     c.sides[0].name, difference);
}

void TimeSide(benchmark::State& state, const Case& c, size_t which) {
  static std::set<std::string> checked;
  std::unique_ptr<Side> side;
  try {
    side = c.sides[which].make();
  } catch (const std::exception& error) {
    state.SkipWithError((kNotThere + std::string(error.what())).c_str());
    return;
  }
  if (which > 0 && checked.insert(SideName(c, c.sides[which].name)).second) {
    const std::string message = Disagreement(c, *side);
    if (!message.empty()) return state.SkipWithError(message.c_str());
  }
  side->Run();  // wakes the threads, brings the tensors into the caches
  for (auto unused : state) {
    (void)unused;
    side->Run();
  }
  state.SetLabel(side->Implementation());
}

void TimeTraffic(benchmark::State& state, Traffic traffic, size_t bytes,
                 ThreadPool* pool) {
  TrafficRun run(traffic, bytes, pool);
  run.Run();
  for (auto unused : state) {
    (void)unused;
    run.Run();
  }
}

void Register(const std::vector<Case>& cases, const Options& options,
              ThreadPool* pool) {
  // What one thread does takes the same CPU time on a busy machine.
  const auto add = [&](const std::string& name, auto function) {
    auto* made = benchmark::RegisterBenchmark(name.c_str(), function);
    if (options.threads > 1) made->UseRealTime();
  };
  for (const Traffic traffic :
       {Traffic::kRead, Traffic::kWrite, Traffic::kCopy}) {
    for (const size_t bytes : kTrafficBytes) {
      add(BoundName(traffic, bytes), [=](benchmark::State& state) {
        TimeTraffic(state, traffic, bytes, pool);
      });
    }
  }
  for (const Case& c : cases) {
    for (size_t i = 0; i < c.sides.size(); ++i) {
      add(SideName(c, c.sides[i].name),
          [&c, i](benchmark::State& state) { TimeSide(state, c, i); });
    }
  }
}

bool Parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--quick") {
      options.quick = true;
    } else if (name.starts_with("--benchmark_")) {
      options.rest.emplace_back(name);
    } else if (i + 1 < argc && name == "--threads") {
      options.threads = std::atoi(argv[++i]);
    } else if (i + 1 < argc && name == "--only") {
      options.filter = argv[++i];
    } else {
      return false;
    }
  }
  return options.threads >= 1 && options.threads <= ThreadPool::kMaxThreads;
}

// Ours first, so that the user's own win.
void InitializeGoogleBenchmark(const char* program, const Options& options) {
  std::vector<std::string> arguments = {
      program, "--benchmark_enable_random_interleaving=true",
      fmt::format("--benchmark_repetitions={}", options.quick ? 2 : 9),
      fmt::format("--benchmark_min_time={}", options.quick ? 0.002 : 0.05)};
  if (!options.filter.empty()) {
    arguments.push_back("--benchmark_filter=^bound |" + options.filter);
  }
  arguments.insert(arguments.end(), options.rest.begin(), options.rest.end());
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  int count = static_cast<int>(pointers.size());
  benchmark::Initialize(&count, pointers.data());
}

int Main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, options)) {
    fmt::print(stderr, "bad arguments; see bench/families --help\n");
    return 2;
  }
  InitializeGoogleBenchmark(argv[0], options);
  omp_set_num_threads(options.threads);
  auto pool = ThreadPool::Create(options.threads);
  if (!pool.ok()) {
    fmt::print(stderr, "{}\n", pool.status().message());
    return 1;
  }
  std::vector<Case> cases;
  for (const auto& family : {MatmulCases, NormCases, ElementwiseCases,
                             PoolCases, SoftmaxCases, UpdateCases}) {
    std::ranges::move(family(pool->get()), std::back_inserter(cases));
  }
  Register(cases, options, pool->get());
  const double peak =
      MeasureFmaPeak(options.quick ? 0.1 : 0.5) * options.threads;
  Table table(cases, peak, /*cpu_time=*/options.threads == 1);
  benchmark::RunSpecifiedBenchmarks(&table);
  return table.failed() ? 1 : 0;
}

}  // namespace
}  // namespace thimble::bench

int main(int argc, char** argv) { return thimble::bench::Main(argc, argv); }
