// SPDX-License-Identifier: Apache-2.0
//
// Each convolution of WRN-28-2, ours beside oneDNN's. Both sides take turns, so
// that what else runs on the machine meets both; medians over rounds. GFLOP/s
// are nominal: taps that meet padding are counted, whoever skips them, and all
// multiplications, whoever does with fewer (Winograd).
#include "kernels/conv/conv.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "clock.h"
#include "fma_peak.h"
#include "kernels/dot/dot_form.h"
#include "kernels/target.h"
#include "onednn_conv.h"
#include "our_conv.h"

namespace thimble::bench {
namespace {

using kernels::Conv2dShape;

struct Layer {
  Conv2dShape shape;
  int count;  // in one step of WRN-28-2; 0: not weighed
  bool grad_input = true;
};

// The stem's input needs no gradient.
const Layer kLayers[] = {
    {{3, 32, 32, 16, 3, 3, 1, 1}, 1, false}, {{16, 32, 32, 32, 3, 3, 1, 1}, 1},
    {{32, 32, 32, 32, 3, 3, 1, 1}, 7},       {{32, 32, 32, 64, 3, 3, 2, 1}, 1},
    {{64, 16, 16, 64, 3, 3, 1, 1}, 7},       {{64, 16, 16, 128, 3, 3, 2, 1}, 1},
    {{128, 8, 8, 128, 3, 3, 1, 1}, 7},       {{32, 32, 32, 64, 1, 1, 1, 0}, 0},
    {{32, 32, 32, 64, 1, 1, 2, 0}, 0},       {{64, 16, 16, 128, 1, 1, 2, 0}, 0},
};

struct Options {
  std::vector<int64_t> batches;
  int threads = 1;
  bool quick = false;
  bool fused = false;
  DType dtype = DType::kF32;
  std::string layer;  // only those whose name contains it
  std::string pass;
  std::string algorithm;     // of oneDNN; empty: the fastest
  DType peer = DType::kF32;  // oneDNN's tensors
};

// The most that one thread can do, GFLOP/s.
struct Peak {
  double value;
  bool dot;  // dot products of bf16, not f32's fused multiply-adds
};

Peak MeasurePeak(const Options& options) {
  const double seconds = options.quick ? 0.1 : 0.5;
  const bool dot = options.dtype == DType::kBF16 &&
                   kernels::ActiveDotForm() == kernels::DotForm::kNative;
  return {dot ? MeasureDotPeak(seconds) : MeasureFmaPeak(seconds), dot};
}

const char* PassName(ConvPass pass) {
  switch (pass) {
    case ConvPass::kForward:
      return "forward";
    case ConvPass::kGradInput:
      return "backward-data";
    case ConvPass::kGradWeight:
      return "backward-weights";
  }
  return "?";
}

std::string LayerName(const Conv2dShape& s) {
  return fmt::format("{}->{} {}x{} {}x{} s{}", s.in_channels, s.out_channels,
                     s.in_height, s.in_width, s.kernel_h, s.kernel_w, s.stride);
}

double Flops(const Conv2dShape& s, int64_t images) {
  return 2.0 * static_cast<double>(images * s.out_channels * s.out_height() *
                                   s.out_width() * s.in_channels * s.kernel_h *
                                   s.kernel_w);
}

// Multiples of 1/128 in [-1, 1), or positive ones.
std::vector<float> Values(int64_t n, uint32_t seed, bool positive = false) {
  std::vector<float> values(static_cast<size_t>(n));
  uint32_t state = seed;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    const auto bits = static_cast<int>(state >> 24);
    value = static_cast<float>(positive ? bits / 2 + 1 : bits - 128) / 128.0f;
  }
  return values;
}

// The largest difference relative to the results' root mean square.
double Difference(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0.0, square = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - b[i]));
    square += static_cast<double>(b[i]) * b[i];
  }
  return worst / std::sqrt(square / static_cast<double>(a.size()));
}

template <typename F>
double SecondsPerRun(bool cpu, int runs, const F& run) {
  run();  // wakes the threads, brings the tensors into the caches
  const double start = Now(cpu);
  for (int i = 0; i < runs; ++i) run();
  return (Now(cpu) - start) / runs;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2,
                   values.end());
  return values[values.size() / 2];
}

// The fastest of oneDNN's in a few short rounds, of all that it has.
OneDnnConv Fastest(std::vector<OneDnnConv> all, bool cpu, int runs) {
  size_t best = 0;
  double best_time = 0.0;
  for (size_t i = 0; i < all.size(); ++i) {
    double time = 0.0;
    for (int round = 0; round < 3; ++round) {
      const double now = SecondsPerRun(cpu, runs, [&] { all[i].Run(); });
      time = round == 0 ? now : std::min(time, now);
    }
    if (i > 0 && time >= best_time) continue;
    best = i;
    best_time = time;
  }
  return std::move(all[best]);
}

struct Totals {
  double ours = 0.0;
  double theirs = 0.0;
};

// Prints one line; false where the two sides disagree.
bool Compare(const Layer& layer, int64_t images, ConvPass pass,
             const Options& options, ThreadPool* pool, double peak,
             Totals& totals) {
  const Conv2dShape& s = layer.shape;
  const auto x = Values(images * s.in_channels * s.in_height * s.in_width, 1,
                        options.fused);
  const auto w =
      Values(s.out_channels * s.in_channels * s.kernel_h * s.kernel_w, 2);
  const auto g =
      Values(images * s.out_channels * s.out_height() * s.out_width(), 3);
  // The stem reads bytes, except where a plain f32 convolution is asked for.
  const bool plain = options.dtype == DType::kF32 && !options.fused;
  const OurForm form{options.dtype, !layer.grad_input && !plain, options.fused};
  OurConv ours(s, images, pass, form, pool, x, w, g);
  const double flops = Flops(s, images);
  const double round_seconds = options.quick ? 0.01 : 0.04;
  const int runs = std::max(1, static_cast<int>(round_seconds * peak *
                                                options.threads * 1e9 / flops));
  const bool cpu = options.threads == 1;
  std::vector<OneDnnConv> all = OneDnnConv::All(s, images, pass, options.peer,
                                                options.algorithm, x, w, g);
  if (all.empty()) {
    fmt::print("{:<22} {:<16} oneDNN has no {} algorithm for it\n",
               LayerName(s), PassName(pass), options.algorithm);
    return true;
  }
  OneDnnConv theirs = Fastest(std::move(all), cpu, (runs + 3) / 4);
  ours.Run();
  theirs.Run();
  const double difference = Difference(ours.Result(), theirs.Result());
  std::vector<double> our_times, their_times;
  for (int round = 0; round < (options.quick ? 5 : 9); ++round) {
    our_times.push_back(SecondsPerRun(cpu, runs, [&] { ours.Run(); }));
    their_times.push_back(SecondsPerRun(cpu, runs, [&] { theirs.Run(); }));
  }
  const double our_time = Median(our_times), their_time = Median(their_times);
  totals.ours += layer.count * our_time;
  totals.theirs += layer.count * their_time;
  fmt::print(
      "{:<22} {:<16} {:>7.1f} {:>7.1f} {:>6.2f} {:>6.1f}% {:>6.1f}% {:>8} {}\n",
      LayerName(s), PassName(pass), flops / our_time * 1e-9,
      flops / their_time * 1e-9, their_time / our_time,
      100 * flops / our_time * 1e-9 / (peak * options.threads),
      100 * flops / their_time * 1e-9 / (peak * options.threads),
      ours.WorkspacePerThread(), theirs.Implementation());
  // Rounding to storage, in units of a result that is a few times the root mean
  // square.
  const double tolerance = options.dtype == DType::kF32   ? 1e-3
                           : options.dtype == DType::kF16 ? 1e-2
                                                          : 5e-2;
  if (difference < tolerance) return true;
  fmt::print("  DISAGREE by {:.3g} of the root mean square\n", difference);
  return false;
}

bool CompareAll(int64_t images, const Options& options, ThreadPool* pool) {
  const Peak peak = MeasurePeak(options);
  fmt::print(
      "\nbatch {}, {} thread{}, {}, {}{}: {} peak {:.1f} GFLOP/s per thread; "
      "oneDNN {} in {}, {}\n",
      images, options.threads, options.threads > 1 ? "s" : "",
      kernels::TargetName(kernels::ActiveTarget()), DTypeName(options.dtype),
      options.fused ? ", fused" : "", peak.dot ? "dot product" : "FMA",
      peak.value, OneDnnConv::Version(), DTypeName(options.peer),
      options.algorithm.empty() ? "its fastest for each line"
                                : options.algorithm + " only");
  fmt::print("{:<22} {:<16} {:>7} {:>7} {:>6} {:>7} {:>7} {:>8} {}\n", "layer",
             "pass", "ours", "oneDNN", "ratio", "peak", "oneDNN", "bytes/th",
             "oneDNN's kernel");
  bool agree = true;
  for (ConvPass pass :
       {ConvPass::kForward, ConvPass::kGradInput, ConvPass::kGradWeight}) {
    Totals totals;
    if (!options.pass.empty() && options.pass != PassName(pass)) continue;
    for (const Layer& layer : kLayers) {
      if (pass == ConvPass::kGradInput && !layer.grad_input) continue;
      if (LayerName(layer.shape).find(options.layer) == std::string::npos) {
        continue;
      }
      agree &= Compare(layer, images, pass, options, pool, peak.value, totals);
    }
    if (totals.ours == 0.0) continue;
    fmt::print("{:<22} {:<16} weighted by time in a step: ratio {:.3f}\n", "",
               PassName(pass), totals.theirs / totals.ours);
  }
  return agree;
}

bool ForceTargetNamed(std::string_view name) {
  for (kernels::Target target : kernels::SupportedTargets()) {
    if (kernels::TargetName(target) != name) continue;
    kernels::ForceTarget(target);
    return true;
  }
  return false;
}

bool ParseType(std::string_view name, DType& dtype) {
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (name != DTypeName(type)) continue;
    dtype = type;
    return true;
  }
  return false;
}

bool Parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--quick" || name == "--fused") {
      (name == "--quick" ? options.quick : options.fused) = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const char* value = argv[++i];
    if (name == "--batch") {
      options.batches.push_back(std::atoll(value));
      if (options.batches.back() < 1) return false;
    } else if (name == "--threads") {
      options.threads = std::atoi(value);
      if (options.threads < 1) return false;
    } else if (name == "--dtype") {
      if (!ParseType(value, options.dtype)) return false;
    } else if (name == "--layer") {
      options.layer = value;
    } else if (name == "--pass") {
      options.pass = value;
    } else if (name == "--algorithm") {
      options.algorithm = value;
      if (!OneDnnConv::IsAlgorithm(value)) return false;
    } else if (name != "--target" || !ForceTargetNamed(value)) {
      return false;
    }
  }
  if (options.dtype == DType::kBF16) options.peer = DType::kBF16;
  if (options.batches.empty()) options.batches = {10, 100};
  return true;
}

int Main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, options)) {
    fmt::print(stderr, "bad arguments; see bench/conv --help\n");
    return 2;
  }
  omp_set_num_threads(options.threads);
  auto pool = ThreadPool::Create(options.threads);
  if (!pool.ok()) {
    fmt::print(stderr, "{}\n", pool.status().message());
    return 1;
  }
  bool agree = true;
  for (int64_t images : options.batches) {
    agree &= CompareAll(images, options, pool->get());
  }
  return agree ? 0 : 1;
}

}  // namespace
}  // namespace thimble::bench

int main(int argc, char** argv) { return thimble::bench::Main(argc, argv); }
