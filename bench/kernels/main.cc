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
#include <exception>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fma_peak.h"
#include "function_rate.h"
#include "kernels/cases.h"
#include "kernels/options.h"
#include "kernels/table.h"
#include "kernels/target.h"
#include "memory_traffic.h"

namespace thimble::bench {
namespace {

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

// What a side's first run must give: for ours the definition, which is there
// where no peer is; for a peer what ours gives. Empty: nothing is known.
std::vector<float> Expected(const Case& c, size_t which) {
  if (which == 0) return c.definition ? c.definition() : std::vector<float>();
  const std::unique_ptr<Side> ours = c.sides[0].make();
  ours->Run();
  return ours->Result();
}

// Runs a side that has not run yet, and says how its result is wrong; empty
// where it is right.
std::string Disagreement(const Case& c, size_t which, Side& side) {
  side.Run();
  const std::vector<float> expected = Expected(c, which);
  if (which == 0 && expected.empty()) return "";
  const double difference = Difference(side.Result(), expected);
  if (difference < c.tolerance) return "";
  return fmt::format("disagrees with {} by {:.3g} of the root mean square",
                     which == 0 ? "the definition" : kOurs, difference);
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
  if (checked.insert(SideName(c, c.sides[which].name)).second) {
    const std::string message = Disagreement(c, which, *side);
    if (!message.empty()) return state.SkipWithError(message.c_str());
  }
  side->Run();  // wakes the threads, brings the tensors into the caches
  for (auto unused : state) {
    (void)unused;
    side->Run();
  }
  state.SetLabel(side->Implementation());
}

template <typename Bound>
void TimeBound(benchmark::State& state, Bound bound) {
  bound.Run();
  for (auto unused : state) {
    (void)unused;
    bound.Run();
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
        TimeBound(state, TrafficRun(traffic, bytes, pool));
      });
    }
  }
  for (const Function function : {Function::kExp, Function::kTanh}) {
    add(BoundName(function), [=](benchmark::State& state) {
      TimeBound(state, FunctionRun(function, pool));
    });
  }
  for (const Case& c : cases) {
    for (size_t i = 0; i < c.sides.size(); ++i) {
      add(SideName(c, c.sides[i].name),
          [&c, i](benchmark::State& state) { TimeSide(state, c, i); });
    }
  }
}

// Ours first, so that the user's own win.
void InitializeGoogleBenchmark(const char* program, const Options& options) {
  std::vector<std::string> arguments = {
      program, "--benchmark_enable_random_interleaving=true",
      fmt::format("--benchmark_repetitions={}", options.quick ? 1 : 9),
      fmt::format("--benchmark_min_time={}", options.quick ? 0.002 : 0.05)};
  arguments.insert(arguments.end(), options.rest.begin(), options.rest.end());
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  int count = static_cast<int>(pointers.size());
  benchmark::Initialize(&count, pointers.data());
}

// Products alone have cases in bf16.
std::vector<Case> AllCases(ThreadPool* pool, DType dtype) {
  std::vector<Case> cases = MatmulCases(pool, dtype);
  if (dtype != DType::kF32) return cases;
  for (const auto& family :
       {NormCases, ElementwiseCases, ChannelCases, PoolCases, SoftmaxCases,
        LstmCases, ShortcutCases, UpdateCases}) {
    std::ranges::move(family(pool), std::back_inserter(cases));
  }
  return cases;
}

int Main(int argc, char** argv) {
  Options options;
  const std::string wrong = Parse(argc, argv, options);
  if (!wrong.empty()) {
    fmt::print(stderr, "bench_kernels: {}; see bench/families --help\n", wrong);
    return 2;
  }
  const Status cpu = kernels::CheckCpu();
  if (!cpu.ok()) {
    fmt::print(stderr, "bench_kernels: {}\n", cpu.message());
    return 1;
  }
  omp_set_num_threads(options.threads);
  auto pool = ThreadPool::Create(options.threads);
  if (!pool.ok()) {
    fmt::print(stderr, "bench_kernels: {}\n", pool.status().message());
    return 1;
  }
  const std::vector<Case> cases =
      Chosen(AllCases(pool->get(), options.dtype), options);
  if (cases.empty()) {
    fmt::print(stderr,
               "bench_kernels: --only {}: no case matches; names are "
               "like 'matmul forward mlp 100x784->256'\n",
               options.only);
    return 2;
  }
  InitializeGoogleBenchmark(argv[0], options);
  Register(cases, options, pool->get());
  const double seconds = options.quick ? 0.1 : 0.5;
  Table::Machine machine = {
      .threads = options.threads,
      .fma_peak = MeasureFmaPeak(seconds) * options.threads};
  if (options.dtype == DType::kBF16) {
    machine.dot_peak = MeasureDotPeak(seconds) * options.threads;
  }
  Table table(cases, machine);
  benchmark::RunSpecifiedBenchmarks(&table);
  return table.failed() ? 1 : 0;
}

}  // namespace
}  // namespace thimble::bench

int main(int argc, char** argv) { return thimble::bench::Main(argc, argv); }
