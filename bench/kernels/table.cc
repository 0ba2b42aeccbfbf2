// SPDX-License-Identifier: Apache-2.0
#include "kernels/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace thimble::bench {
namespace {

constexpr std::pair<Traffic, const char*> kTraffic[] = {
    {Traffic::kRead, "read"},
    {Traffic::kWrite, "write"},
    {Traffic::kCopy, "copy"}};

// "12.3", or a dash for what is not there.
std::string Cell(double value, int digits) {
  return value > 0 ? fmt::format("{:.{}f}", value, digits) : "-";
}

double Ratio(double a, double b) { return a > 0 && b > 0 ? a / b : 0; }

}  // namespace

std::string BoundName(Traffic traffic, size_t bytes) {
  const char* name = "";
  for (const auto& [each, its_name] : kTraffic) {
    if (each == traffic) name = its_name;
  }
  return fmt::format("bound {} {} KiB", name, bytes / 1024);
}

std::string SideName(const Case& c, const std::string& side) {
  return c.name + " / " + side;
}

bool Table::ReportContext(const Context&) { return true; }

void Table::ReportRuns(const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    if (run.error_occurred) {
      if (run.error_message.starts_with(kNotThere)) continue;
      fmt::print("{}: {}\n", run.run_name.function_name, run.error_message);
      failed_ = true;
      continue;
    }
    // One measurement, or the median of several.
    const bool is_one = run.run_type == Run::RT_Iteration;
    if (is_one ? run.repetitions > 1 : run.aggregate_name != "median") continue;
    const double time =
        cpu_time_ ? run.GetAdjustedCPUTime() : run.GetAdjustedRealTime();
    measured_[run.run_name.function_name] = {
        time / benchmark::GetTimeUnitMultiplier(run.time_unit),
        run.report_label};
  }
}

void Table::PrintBounds() const {
  fmt::print("FMA peak {:.1f} GFLOP/s; memory in GB/s, by size of the buffer\n",
             fma_peak_);
  fmt::print("{:>12} {:>8} {:>8} {:>8}\n", "KiB", "read", "write", "copy");
  for (const size_t bytes : kTrafficBytes) {
    fmt::print("{:>12}", bytes / 1024);
    for (const auto& [traffic, name] : kTraffic) {
      const double rate = BytesPerSecond(traffic, static_cast<double>(bytes));
      fmt::print(" {:>8}", Cell(rate * 1e-9, 1));
    }
    fmt::print("\n");
  }
}

double Table::BytesPerSecond(Traffic traffic, double tensors) const {
  size_t bytes = kTrafficBytes[0];
  for (const size_t each : kTrafficBytes) {
    if (static_cast<double>(bytes) < tensors) bytes = each;
  }
  const auto at = measured_.find(BoundName(traffic, bytes));
  if (at == measured_.end()) return 0;
  return static_cast<double>(bytes) / at->second.seconds;
}

double Table::BoundOf(const Work& work) const {
  const double copied = 2 * std::min(work.read, work.written);
  const std::pair<Traffic, double> parts[] = {
      {Traffic::kCopy, copied},
      {Traffic::kRead, work.read - copied / 2},
      {Traffic::kWrite, work.written - copied / 2}};
  double memory = 0;
  for (const auto& [traffic, bytes] : parts) {
    if (bytes <= 0) continue;
    const double rate = BytesPerSecond(traffic, work.tensors);
    if (rate <= 0) return 0;
    memory += bytes / rate;
  }
  return std::max(memory, work.flops / (fma_peak_ * 1e9));
}

void Table::PrintCase(const Case& c) const {
  double ours = 0;
  Measured peer;
  for (const SideMaker& side : c.sides) {
    const auto at = measured_.find(SideName(c, side.name));
    if (at == measured_.end()) continue;
    if (side.name == kOurs) {
      ours = at->second.seconds;
    } else if (peer.seconds == 0 || at->second.seconds < peer.seconds) {
      peer = at->second;
      peer.label = side.name + " " + peer.label;
    }
  }
  const double bound = BoundOf(c.work);
  fmt::print("{:<58} {:>10} {:>10} {:>10} {:>7} {:>7} {:>7} {}\n", c.name,
             Cell(ours * 1e6, 1), Cell(peer.seconds * 1e6, 1),
             Cell(bound * 1e6, 1), Cell(Ratio(peer.seconds, ours), 2),
             Cell(Ratio(bound, ours), 2), Cell(Ratio(bound, peer.seconds), 2),
             peer.label);
}

void Table::Finalize() {
  PrintBounds();
  fmt::print("\n{:<58} {:>10} {:>10} {:>10} {:>7} {:>7} {:>7} {}\n",
             "microseconds, and ratios of speeds", "ours", "peer", "bound",
             "to peer", "to bnd", "peer's", "the fastest peer");
  for (const Case& c : cases_) {
    const bool is_measured =
        c.sides.empty() ||
        std::ranges::any_of(c.sides, [&](const SideMaker& side) {
          return measured_.contains(SideName(c, side.name));
        });
    if (is_measured) PrintCase(c);
  }
}

}  // namespace thimble::bench
