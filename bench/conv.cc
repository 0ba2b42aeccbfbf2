// SPDX-License-Identifier: Apache-2.0
//
// Each convolution of WRN-28-2, ours beside oneDNN's. Both sides take turns, so
// that what else runs on the machine meets both; medians over rounds. GFLOP/s
// are nominal: taps that meet padding are counted, whoever skips them.
#include "kernels/conv/conv.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "clock.h"
#include "fma_peak.h"
#include "kernels/target.h"
#include "onednn_conv.h"

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
  std::string layer;  // only those whose name contains it
  std::string pass;
};

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

std::vector<float> Values(int64_t n, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(n));
  uint32_t state = seed;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
  }
  return values;
}

// One pass of one layer on our side: tensors, scratch, and how to run it.
class OurConv {
 public:
  OurConv(const Conv2dShape& shape, int64_t images, ConvPass pass,
          ThreadPool* pool, const std::vector<float>& x,
          const std::vector<float>& w, const std::vector<float>& grad_y)
      : shape_(shape), images_(images), pass_(pass), x_(x), w_(w), g_(grad_y) {
    switch (pass) {
      case ConvPass::kForward:
        context_.workspace = Conv2dForwardWorkspace(shape);
        result_.resize(grad_y.size());
        break;
      case ConvPass::kGradInput:
        context_.workspace = Conv2dGradInputWorkspace(shape);
        result_.resize(x.size());
        break;
      case ConvPass::kGradWeight:
        context_.workspace = Conv2dGradWeightWorkspace(shape);
        result_.resize(w.size());
        break;
    }
    context_.pool = pool;
    const size_t bytes = TotalBytes(context_.workspace, pool->threads());
    context_.scratch = static_cast<std::byte*>(
        std::aligned_alloc(kAlignment, std::max(bytes, kAlignment)));
  }
  ~OurConv() { std::free(context_.scratch); }
  OurConv(const OurConv&) = delete;
  OurConv& operator=(const OurConv&) = delete;

  void Run() {
    switch (pass_) {
      case ConvPass::kForward:
        Conv2dForward(shape_, images_, x_.data(), w_.data(), result_.data(),
                      context_);
        break;
      case ConvPass::kGradInput:
        Conv2dGradInput(shape_, images_, g_.data(), w_.data(), result_.data(),
                        context_);
        break;
      case ConvPass::kGradWeight:
        Conv2dGradWeight(shape_, images_, x_.data(), g_.data(), result_.data(),
                         context_);
        break;
    }
  }
  const std::vector<float>& Result() const { return result_; }
  size_t WorkspacePerThread() const {
    return TotalBytes(context_.workspace, context_.pool->threads()) /
           static_cast<size_t>(context_.pool->threads());
  }

 private:
  Conv2dShape shape_;
  int64_t images_;
  ConvPass pass_;
  const std::vector<float>&x_, &w_, &g_;
  std::vector<float> result_;
  kernels::KernelContext context_;
};

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

struct Totals {
  double ours = 0.0;
  double theirs = 0.0;
};

// Prints one line; false where the two sides disagree.
bool Compare(const Layer& layer, int64_t images, ConvPass pass,
             const Options& options, ThreadPool* pool, double peak,
             Totals& totals) {
  const Conv2dShape& s = layer.shape;
  const auto x = Values(images * s.in_channels * s.in_height * s.in_width, 1);
  const auto w =
      Values(s.out_channels * s.in_channels * s.kernel_h * s.kernel_w, 2);
  const auto g =
      Values(images * s.out_channels * s.out_height() * s.out_width(), 3);
  OurConv ours(s, images, pass, pool, x, w, g);
  OneDnnConv theirs(s, images, pass, x, w, g);
  ours.Run();
  theirs.Run();
  const double difference = Difference(ours.Result(), theirs.Result());
  const double flops = Flops(s, images);
  const double round_seconds = options.quick ? 0.01 : 0.04;
  const int runs = std::max(1, static_cast<int>(round_seconds * peak *
                                                options.threads * 1e9 / flops));
  const bool cpu = options.threads == 1;
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
  if (difference < 1e-3) return true;
  fmt::print("  DISAGREE by {:.3g} of the root mean square\n", difference);
  return false;
}

bool CompareAll(int64_t images, const Options& options, ThreadPool* pool) {
  const double peak = MeasureFmaPeak(options.quick ? 0.1 : 0.5);
  fmt::print(
      "\nbatch {}, {} thread{}, {}: FMA peak {:.1f} GFLOP/s per thread\n",
      images, options.threads, options.threads > 1 ? "s" : "",
      kernels::TargetName(kernels::ActiveTarget()), peak);
  fmt::print("{:<22} {:<16} {:>7} {:>7} {:>6} {:>7} {:>7} {:>8}\n", "layer",
             "pass", "ours", "oneDNN", "ratio", "peak", "oneDNN", "bytes/th");
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
      agree &= Compare(layer, images, pass, options, pool, peak, totals);
    }
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

bool Parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--quick") {
      options.quick = true;
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
    } else if (name == "--layer") {
      options.layer = value;
    } else if (name == "--pass") {
      options.pass = value;
    } else if (name != "--target" || !ForceTargetNamed(value)) {
      return false;
    }
  }
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
