// SPDX-License-Identifier: Apache-2.0
//
// The table that bench_kernels prints: for each case our side beside the
// fastest peer and beside the bound of the machine, as measured in the same
// run. One thread.
#pragma once

#include <benchmark/benchmark.h>

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "function_rate.h"
#include "kernels/cases.h"
#include "memory_traffic.h"

namespace thimble::bench {

// Buffers, by size, for which the bounds of memory are measured: a case is held
// against those of its own size, so that a tensor that stays in a cache is
// compared with what that cache gives.
inline constexpr auto kTrafficBytes = [] {
  std::array<size_t, 14> sizes{};
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = size_t{1} << (15 + i);
  return sizes;
}();

// Names of benchmarks: of bounds, and of a side of a case.
std::string BoundName(Traffic traffic, size_t bytes);
std::string BoundName(Function function);
std::string SideName(const Case& c, const std::string& side);

// How the error of a benchmark begins where a peer has no such kernel, which is
// no failure.
inline constexpr char kNotThere[] = "not there: ";

// Below this share of its peer, or of its bound where it has none, a case is
// marked.
inline constexpr double kWanted = 0.7;

class Table final : public benchmark::BenchmarkReporter {
 public:
  struct Machine {
    int threads;
    double fma_peak;      // GFLOP/s of all threads
    double dot_peak = 0;  // the same of dot products; 0: none are timed
  };

  Table(std::vector<Case> cases, const Machine& machine)
      : cases_(std::move(cases)), machine_(machine) {}

  bool ReportContext(const Context& context) override;
  void ReportRuns(const std::vector<Run>& runs) override;
  void Finalize() override;

  // Some side disagreed with another one, or failed.
  bool failed() const { return failed_; }

 private:
  struct Measured {
    double seconds = 0;
    std::string label;
  };

  void PrintBounds() const;
  // Whether it is as fast as wanted.
  bool PrintCase(const Case& c) const;
  // Seconds, and what takes them; 0 where it was not measured.
  Measured BoundOf(const Work& work) const;
  double MemorySeconds(const Work& work) const;
  double BytesPerSecond(Traffic traffic, double tensors) const;
  double ValuesPerSecond(Function function) const;

  std::vector<Case> cases_;
  Machine machine_;
  bool failed_ = false;
  std::map<std::string, Measured> measured_;  // by the benchmark's name
};

}  // namespace thimble::bench
