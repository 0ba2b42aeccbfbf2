// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of WRN-28-2 with sparse weights beside our dense ones of the
// same storage type. Both take turns, so that what else runs on the machine
// meets both; medians over rounds, as times.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "clock.h"
#include "kernels/conv/conv.h"
#include "kernels/dot/dot_form.h"
#include "kernels/target.h"
#include "thimble/sparsity.h"

namespace thimble::bench {
namespace {

using kernels::ConstTensor;
using kernels::Conv2dShape;
using kernels::Tensor;

const Conv2dShape kLayers[] = {
    {32, 32, 32, 32, 3, 3, 1, 1},  {64, 16, 16, 64, 3, 3, 1, 1},
    {128, 8, 8, 128, 3, 3, 1, 1},  {32, 32, 32, 64, 3, 3, 2, 1},
    {64, 16, 16, 128, 3, 3, 2, 1}, {32, 32, 32, 64, 1, 1, 2, 0},
    {64, 16, 16, 128, 1, 1, 2, 0},
};
constexpr std::string_view kPasses[] = {"forward", "backward-data",
                                        "backward-weights"};

struct Options {
  int64_t batch = 10;
  int threads = 1;
  bool quick = false;
  bool fused = false;
  DType dtype = DType::kF32;
  std::vector<double> densities;
  WeightBlock block;
  std::optional<IndexCodec> codec;  // else the smaller index
  std::string layer;                // only those whose name contains it
  std::string pass;
};

std::string LayerName(const Conv2dShape& s) {
  return fmt::format("{}->{} {}x{} {}x{} s{}", s.in_channels, s.out_channels,
                     s.in_height, s.in_width, s.kernel_h, s.kernel_w, s.stride);
}

// Values in [-1, 1) as they are stored; what is lost to rounding does not
// matter for times.
std::vector<std::byte> Random(DType dtype, int64_t n, uint32_t seed) {
  std::vector<std::byte> bytes(BytesFor(dtype, n));
  std::mt19937 random(seed);
  for (int64_t i = 0; i < n; ++i) {
    const float value =
        static_cast<float>(random() >> 24) / 128.0f - 1.0f + 1.0f / 256.0f;
    const auto bits = std::bit_cast<uint32_t>(value);
    if (dtype == DType::kF32) {
      std::memcpy(&bytes[static_cast<size_t>(4 * i)], &value, 4);
      continue;
    }
    const uint32_t half = dtype == DType::kBF16
                              ? bits >> 16
                              : (bits >> 16 & 0x8000u) |
                                    ((bits & 0x7FFFFFFFu) - (112u << 23)) >> 13;
    std::memcpy(&bytes[static_cast<size_t>(2 * i)], &half, 2);
  }
  return bytes;
}

// The index of one weight whose blocks are kept with a probability.
struct Index {
  PoolLayout layout;
  std::vector<std::byte> bytes;
};
Index RandomIndex(const Conv2dShape& s, const Options& options,
                  double density) {
  const BlockMatrix matrix = *BlocksOf(
      {s.out_channels, s.in_channels, s.kernel_h, s.kernel_w}, options.block);
  std::mt19937 random(7);
  std::bernoulli_distribution keeps(density);
  std::vector<std::vector<uint16_t>> rows(static_cast<size_t>(matrix.rows));
  int64_t kept = 0;
  for (auto& row : rows) {
    for (int64_t c = 0; c < matrix.columns; ++c) {
      if (keeps(random)) row.push_back(static_cast<uint16_t>(c));
    }
    kept += static_cast<int64_t>(row.size());
  }
  Index index{options.codec
                  ? PoolLayout({matrix}, options.block, kept, *options.codec)
                  : PoolLayout::Smallest({matrix}, options.block, kept),
              {}};
  index.bytes.resize(index.layout.index_bytes());
  PoolLayout::Writer writer(index.layout, index.bytes.data());
  for (const auto& row : rows) writer.Row(row);
  return index;
}

// The passes of one layer, dense or sparse. The largest tensors are shared.
class Layer {
 public:
  Layer(const Conv2dShape& s, const Options& options, ThreadPool* pool)
      : options_(options), pool_(pool), dense_(s), sparse_(s) {
    sparse_.blocks = options.block;
    const int64_t images = options.batch;
    const int64_t in = images * s.in_channels * s.in_height * s.in_width;
    const int64_t out =
        images * s.out_channels * s.out_height() * s.out_width();
    const int64_t weights =
        s.out_channels * s.in_channels * s.kernel_h * s.kernel_w;
    x_ = Random(options.dtype, in, 1);
    grad_y_ = Random(options.dtype, out, 2);
    w_ = Random(options.dtype, weights, 3);
    residual_ = Random(options.dtype, out, 4);
    result_.resize(std::max({x_.size(), grad_y_.size(), w_.size()}));
    const auto channels =
        static_cast<size_t>(std::max(s.in_channels, s.out_channels));
    ones_.assign(channels, 1.0f);
    zeros_.assign(channels, 0.0f);
    sums_[0] = sums_[1] = zeros_;
  }

  void Run(size_t pass, const Pattern* pattern) {
    const Conv2dShape& s = pattern != nullptr ? sparse_ : dense_;
    const kernels::Conv2dReduction reduction{options_.fused, options_.batch};
    kernels::KernelContext context{.pool = pool_};
    context.workspace = pass == 0   ? Conv2dForwardWorkspace(s, reduction)
                        : pass == 1 ? Conv2dGradInputWorkspace(s, reduction)
                                    : Conv2dGradWeightWorkspace(s);
    bytes_ = context.workspace.per_thread;
    Reserve(TotalBytes(context.workspace, pool_->threads()));
    context.scratch = scratch_.get();
    const ConstTensor w{w_.data(), options_.dtype, nullptr, pattern};
    if (pass == 0) {
      kernels::Conv2dOutput y{.to = To()};
      if (options_.fused) {
        y.residual = {residual_.data(), options_.dtype};
        y.mean = sums_[0].data();
        y.variance = sums_[1].data();
      }
      Conv2dForward(s, options_.batch, X(), w, y, context);
    } else if (pass == 1) {
      Conv2dGradInput(s, options_.batch, GradY(), w, GradX(), context);
    } else {
      Conv2dGradWeight(s, options_.batch, X(), GradY(),
                       {.to = To(), .pattern = pattern}, context);
    }
  }
  size_t BytesPerThread() const { return bytes_; }  // of the last run

 private:
  kernels::Conv2dInput X() const {
    kernels::Conv2dInput x{.x = {x_.data(), options_.dtype}};
    if (!options_.fused) return x;
    x.scale = ones_.data();
    x.shift = zeros_.data();
    x.relu = true;
    return x;
  }
  ConstTensor GradY() const { return {grad_y_.data(), options_.dtype}; }
  Tensor To() { return {result_.data(), options_.dtype}; }
  kernels::Conv2dGradInputTarget GradX() {
    kernels::Conv2dGradInputTarget target{.to = To()};
    if (!options_.fused) return target;
    target.x = {x_.data(), options_.dtype};
    target.scale = target.inv_std = ones_.data();
    target.shift = target.mean = zeros_.data();
    target.grad_gamma = sums_[0].data();
    target.grad_beta = sums_[1].data();
    return target;
  }
  void Reserve(size_t bytes) {
    if (bytes <= reserved_) return;
    reserved_ = RoundUpToAlignment(bytes);
    scratch_.reset(
        static_cast<std::byte*>(std::aligned_alloc(kAlignment, reserved_)));
  }

  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  const Options& options_;
  ThreadPool* pool_;
  Conv2dShape dense_, sparse_;
  std::vector<std::byte> x_, w_, grad_y_, residual_, result_;
  std::vector<float> ones_, zeros_, sums_[2];
  std::unique_ptr<std::byte, Free> scratch_;
  size_t reserved_ = 0;
  size_t bytes_ = 0;
};

double SecondsPerRun(bool cpu, int runs, const std::function<void()>& run) {
  run();
  const double start = Now(cpu);
  for (int i = 0; i < runs; ++i) run();
  return (Now(cpu) - start) / runs;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2,
                   values.end());
  return values[values.size() / 2];
}

double Flops(const Conv2dShape& s, int64_t images) {
  return 2.0 * static_cast<double>(images * s.out_channels * s.out_height() *
                                   s.out_width() * s.in_channels * s.kernel_h *
                                   s.kernel_w);
}

// One line: the dense time, then sparse ones as parts of it.
void Compare(Layer& layer, const Conv2dShape& s, size_t pass,
             const Options& options) {
  std::vector<Index> indices;
  std::vector<Pattern> patterns;
  for (const double density : options.densities) {
    indices.push_back(RandomIndex(s, options, density));
    patterns.push_back(
        indices.back().layout.Of(indices.back().bytes.data(), 0));
  }
  const bool cpu = options.threads == 1;
  const double flops = Flops(s, options.batch);
  const int runs = std::max(
      1, static_cast<int>((options.quick ? 0.002 : 0.01) * 1e11 / flops));
  std::vector<std::vector<double>> times(patterns.size() + 1);
  size_t bytes = 0;
  for (int round = 0; round < (options.quick ? 5 : 9); ++round) {
    for (size_t i = 0; i < times.size(); ++i) {
      const Pattern* pattern = i == 0 ? nullptr : &patterns[i - 1];
      times[i].push_back(
          SecondsPerRun(cpu, runs, [&] { layer.Run(pass, pattern); }));
      bytes = layer.BytesPerThread();
    }
  }
  const double dense = Median(times[0]);
  fmt::print("{:<22} {:<16} {:>7.0f} {:>6.0f}", LayerName(s), kPasses[pass],
             dense * 1e6, flops / dense * 1e-9);
  for (size_t i = 1; i < times.size(); ++i) {
    const double sparse = Median(times[i]);
    fmt::print("  {:>6.3f} {:>6.0f}", sparse / dense, flops / sparse * 1e-9);
  }
  fmt::print(" {:>7}\n", bytes);
}

void CompareAll(const Options& options, ThreadPool* pool) {
  fmt::print(
      "batch {}, {} thread{}, {}, {}{}, blocks {}x{}, dot products {}\n",
      options.batch, options.threads, options.threads > 1 ? "s" : "",
      kernels::TargetName(kernels::ActiveTarget()), DTypeName(options.dtype),
      options.fused ? ", fused" : "", options.block.outputs,
      options.block.inputs,
      kernels::ActiveDotForm() == kernels::DotForm::kNone ? "off" : "on");
  fmt::print("{:<22} {:<16} {:>7} {:>6}", "layer", "pass", "us", "GF/s");
  for (const double density : options.densities) {
    fmt::print("  {:>6} {:>6}", fmt::format("{:.0f}%", 100 * density), "GF/s");
  }
  fmt::print(" {:>7}\n", "bytes");
  for (size_t pass = 0; pass < std::size(kPasses); ++pass) {
    if (!options.pass.empty() && options.pass != kPasses[pass]) continue;
    for (const Conv2dShape& s : kLayers) {
      if (LayerName(s).find(options.layer) == std::string::npos) continue;
      Layer layer(s, options, pool);
      Compare(layer, s, pass, options);
    }
  }
}

bool ParseType(std::string_view name, DType& dtype) {
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (name != DTypeName(type)) continue;
    dtype = type;
    return true;
  }
  return false;
}

bool ForceTargetNamed(std::string_view name) {
  for (kernels::Target target : kernels::SupportedTargets()) {
    if (kernels::TargetName(target) != name) continue;
    kernels::ForceTarget(target);
    return true;
  }
  return false;
}

bool ParseValue(std::string_view name, const char* value, Options& options) {
  const std::string_view text = value;
  if (name == "--batch") options.batch = std::atoll(value);
  if (name == "--threads") options.threads = std::atoi(value);
  if (name == "--layer") options.layer = value;
  if (name == "--pass") options.pass = value;
  if (name == "--nonzero") options.densities.push_back(std::atof(value));
  if (name == "--dtype") return ParseType(text, options.dtype);
  if (name == "--target") return ForceTargetNamed(text);
  if (name == "--pattern") {
    if (text == "2x2") options.block = {2, 2};
    return text == "1x1" || text == "2x2";
  }
  if (name == "--index") {
    const Result<IndexCodec> codec = ParseIndexCodec(text);
    if (codec.ok()) options.codec = *codec;
    return codec.ok();
  }
  return true;
}

bool Parse(int argc, char** argv, Options& options) {
  constexpr std::string_view kNames[] = {"--batch",  "--threads", "--layer",
                                         "--pass",   "--nonzero", "--dtype",
                                         "--target", "--pattern", "--index"};
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--quick" || name == "--fused") {
      (name == "--quick" ? options.quick : options.fused) = true;
    } else if (std::ranges::find(kNames, name) == std::end(kNames) ||
               i + 1 == argc || !ParseValue(name, argv[++i], options)) {
      return false;
    }
  }
  if (options.densities.empty()) options.densities = {0.3, 0.2, 0.1};
  return options.batch > 0 && options.threads > 0;
}

int Main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, options)) {
    fmt::print(stderr,
               "bad option; bench/sparse --help says which there are\n");
    return 2;
  }
  const auto pool = std::move(*ThreadPool::Create(options.threads));
  CompareAll(options, pool.get());
  return 0;
}

}  // namespace
}  // namespace thimble::bench

int main(int argc, char** argv) { return thimble::bench::Main(argc, argv); }
