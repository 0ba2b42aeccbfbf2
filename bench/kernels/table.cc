// SPDX-License-Identifier: Apache-2.0
#include "kernels/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "kernels/target.h"

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

std::string BoundName(Function function) {
  return function == Function::kExp ? "bound exp" : "bound tanh";
}

std::string SideName(const Case& c, const std::string& side) {
  return c.Name() + " / " + side;
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
    // What one thread does takes the same CPU time on a busy machine.
    const double time = machine_.threads == 1 ? run.GetAdjustedCPUTime()
                                              : run.GetAdjustedRealTime();
    measured_[run.run_name.function_name] = {
        time / benchmark::GetTimeUnitMultiplier(run.time_unit),
        run.report_label};
  }
}

void Table::PrintBounds() const {
  fmt::print("The machine, {} thread{}, {}:\n", machine_.threads,
             machine_.threads == 1 ? "" : "s",
             kernels::TargetName(kernels::ActiveTarget()));
  if (machine_.dot_peak > 0) {
    fmt::print("dot product peak {:.1f} GFLOP/s\n", machine_.dot_peak);
  }
  fmt::print(
      "FMA peak {:.1f} GFLOP/s; exp {:.2f} and tanh {:.2f} values/ns; memory "
      "in "
      "GB/s, by size of the buffer:\n",
      machine_.fma_peak, ValuesPerSecond(Function::kExp) * 1e-9,
      ValuesPerSecond(Function::kTanh) * 1e-9);
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

double Table::ValuesPerSecond(Function function) const {
  const auto at = measured_.find(BoundName(function));
  if (at == measured_.end()) return 0;
  return FunctionRun::Values(machine_.threads) / at->second.seconds;
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

double Table::MemorySeconds(const Work& work) const {
  const double copied = 2 * std::min(work.read, work.written);
  const std::pair<Traffic, double> parts[] = {
      {Traffic::kCopy, copied},
      {Traffic::kRead, work.read - copied / 2},
      {Traffic::kWrite, work.written - copied / 2}};
  double seconds = 0;
  for (const auto& [traffic, bytes] : parts) {
    if (bytes <= 0) continue;
    seconds += Ratio(bytes, BytesPerSecond(traffic, work.tensors));
  }
  seconds += Ratio(work.again, BytesPerSecond(Traffic::kRead, 0));
  return seconds;
}

Table::Measured Table::BoundOf(const Work& work) const {
  const double functions = Ratio(work.exps, ValuesPerSecond(Function::kExp)) +
                           Ratio(work.tanhs, ValuesPerSecond(Function::kTanh));
  return std::max({Measured{MemorySeconds(work), "memory"},
                   Measured{work.flops / (machine_.fma_peak * 1e9), "FMA"},
                   Measured{Ratio(work.dots, machine_.dot_peak * 1e9), "dot"},
                   Measured{functions, "exp"}},
                  [](const Measured& a, const Measured& b) {
                    return a.seconds < b.seconds;
                  });
}

bool Table::PrintCase(const Case& c) const {
  double ours = 0;
  Measured peer;
  for (const SideMaker& side : c.sides) {
    const auto at = measured_.find(SideName(c, side.name));
    if (at == measured_.end()) continue;
    if (side.name == kOurs) {
      ours = at->second.seconds;
    } else if (peer.seconds == 0 || at->second.seconds < peer.seconds) {
      peer = {at->second.seconds, side.name + " " + at->second.label};
    }
  }
  const Measured bound = BoundOf(c.work);
  const double of_peer = Ratio(peer.seconds, ours);
  const double of_bound = Ratio(bound.seconds, ours);
  const double standing = peer.seconds > 0 ? of_peer : of_bound;
  const bool is_slow = ours > 0 && standing > 0 && standing < kWanted;
  fmt::print(
      "{:<12}{:<17}{:<19}{:<24}{:>10}{:>10}{:>10}{:>8}{:>8} {} {:<7}{}\n",
      c.family, c.pass, c.network, c.shape, Cell(ours * 1e3, 4),
      Cell(peer.seconds * 1e3, 4), Cell(bound.seconds * 1e3, 4),
      Cell(of_peer, 2), Cell(of_bound, 2), is_slow ? '*' : ' ', bound.label,
      peer.label);
  return !is_slow;
}

void Table::Finalize() {
  PrintBounds();
  fmt::print(
      "\nTimes in ms. of peer: the peer's time over ours, above 1 we are "
      "faster.\nof bound: the bound's time over ours, 1 is all that the "
      "machine can do.\n*: below {} of the peer, or of the bound where there "
      "is no peer.\n\n",
      kWanted);
  fmt::print("{:<12}{:<17}{:<19}{:<24}{:>10}{:>10}{:>10}{:>8}{:>8}   {:<7}{}\n",
             "family", "pass", "network", "shape", "ours", "peer", "bound",
             "of peer", "of bnd", "bound", "the fastest peer");
  int printed = 0, slow = 0;
  for (const Case& c : cases_) {
    const bool is_measured =
        std::ranges::any_of(c.sides, [&](const SideMaker& side) {
          return measured_.contains(SideName(c, side.name));
        });
    if (!is_measured) continue;
    ++printed;
    if (!PrintCase(c)) ++slow;
  }
  fmt::print("\n{} of {} below {}.\n", slow, printed, kWanted);
}

}  // namespace thimble::bench
