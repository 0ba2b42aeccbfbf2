// SPDX-License-Identifier: Apache-2.0
//
// The table that bench_kernels prints: for each case our side beside the
// fastest peer and beside the bound of the machine, as measured in the same
// run. One thread.
#pragma once

#include <benchmark/benchmark.h>

#include <map>
#include <string>
#include <vector>

#include "kernels/cases.h"
#include "memory_traffic.h"

namespace thimble::bench {

// Buffers, by size, for which the bounds of memory are measured: a case is held
// against those of its own size, so that a tensor that stays in a cache is
// compared with what that cache gives.
inline constexpr size_t kTrafficBytes[] = {size_t{1} << 18, size_t{1} << 20,
                                           size_t{1} << 22, size_t{1} << 24,
                                           size_t{1} << 26, size_t{1} << 28};

// Names of benchmarks: of a bound, and of a side of a case.
std::string BoundName(Traffic traffic, size_t bytes);
std::string SideName(const Case& c, const std::string& side);

// How the error of a benchmark begins where a peer has no such kernel, which is
// no failure.
inline constexpr char kNotThere[] = "not there: ";

class Table final : public benchmark::BenchmarkReporter {
 public:
  // `fma_peak`: GFLOP/s of all threads. With `cpu_time` the time that counts is
  // the thread's own.
  Table(std::vector<Case> cases, double fma_peak, bool cpu_time)
      : cases_(std::move(cases)), fma_peak_(fma_peak), cpu_time_(cpu_time) {}

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
  void PrintCase(const Case& c) const;
  // Seconds of the bound; 0 where it was not measured.
  double BoundOf(const Work& work) const;
  double BytesPerSecond(Traffic traffic, double tensors) const;

  std::vector<Case> cases_;
  double fma_peak_;
  bool cpu_time_;
  bool failed_ = false;
  std::map<std::string, Measured> measured_;  // by the benchmark's name
};

}  // namespace thimble::bench
