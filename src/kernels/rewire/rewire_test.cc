// SPDX-License-Identifier: Apache-2.0
#include "kernels/rewire/rewire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "base/half.h"
#include "base/test_allocations.h"
#include "kernels/rewire/naive_rewire.h"
#include "kernels/testing.h"
#include "thimble/sparse_weights.h"

namespace thimble::kernels {
namespace {

using testing::GuardedBuffer;
using testing::NaiveMatrix;
using testing::NaivePool;

constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};

// A pool with its index and some states, each between guard bytes.
class TestPool {
 public:
  TestPool(const PoolLayout& layout, const std::vector<DType>& dtypes)
      : layout_(layout),
        index_(layout.index_bytes()),
        scratch_(RewireScratchBytes(layout)) {
    for (const DType dtype : dtypes) {
      buffers_.push_back(std::make_unique<GuardedBuffer<std::byte>>(
          BytesFor(dtype, values())));
      tensors_.emplace_back(buffers_.back()->data(), dtype);
    }
  }

  int64_t values() const { return layout_.kept() * layout_.block().values(); }
  std::byte* index() { return index_.data(); }
  std::span<const Tensor> tensors() const { return tensors_; }

  void Fill(size_t t, int64_t i, float value) {
    std::byte* at = buffers_[t]->data();
    if (tensors_[t].dtype() == DType::kF32) {
      std::memcpy(at + 4 * i, &value, 4);
      return;
    }
    const uint16_t half =
        tensors_[t].dtype() == DType::kF16 ? F16Of(value) : BF16Of(value);
    std::memcpy(at + 2 * i, &half, 2);
  }

  // With what the scratch held before.
  RewireResult Rewire(const RewireOptions& options, int scratch) {
    std::memset(scratch_.data(), scratch, scratch_.size());
    const int64_t before = AllocationCount();
    const RewireResult result =
        kernels::Rewire(layout_, index_.data(), tensors_[0],
                        tensors().subspan(1), options, scratch_.data());
    EXPECT_EQ(AllocationCount(), before);
    return result;
  }

  NaivePool Read() {
    NaivePool pool;
    pool.Read(layout_, index_.data(), tensors_);
    return pool;
  }

  void Expect(const NaivePool& expected) {
    const Status status = CheckIndex(layout_, index_.span());
    ASSERT_TRUE(status.ok()) << status.message();
    const auto index = expected.Index(layout_);
    ASSERT_TRUE(std::ranges::equal(index_.span(), index));
    for (size_t t = 0; t < tensors_.size(); ++t) {
      ASSERT_TRUE(std::ranges::equal(buffers_[t]->span(), expected.Stored(t)))
          << "tensor " << t;
    }
    index_.CheckGuards("index");
    scratch_.CheckGuards("scratch");
    for (const auto& buffer : buffers_) buffer->CheckGuards("values");
  }

 private:
  const PoolLayout& layout_;
  GuardedBuffer<std::byte> index_, scratch_;
  std::vector<std::unique_ptr<GuardedBuffer<std::byte>>> buffers_;
  std::vector<Tensor> tensors_;
};

// What holds whatever is pruned, and wherever something grows.
void ExpectInvariants(const NaivePool& before, const NaivePool& after,
                      const RewireOptions& options,
                      const RewireResult& result) {
  int64_t total_before = 0, total_after = 0;
  int64_t grown = 0, moved = 0;
  for (size_t m = 0; m < after.matrices.size(); ++m) {
    const NaiveMatrix& old = before.matrices[m];
    const NaiveMatrix& now = after.matrices[m];
    total_before += old.CountKept();
    total_after += now.CountKept();
    if (old.CountKept() > 0) {
      EXPECT_GT(now.CountKept(), 0);
    }
    for (size_t p = 0; p < now.kept.size(); ++p) {
      if (!now.kept[p]) continue;
      const auto is_zero = [&](size_t t) {
        return std::ranges::all_of(now.values[t][p],
                                   [](auto b) { return b == std::byte{0}; });
      };
      if (!old.kept[p]) {
        ++grown;
        for (size_t t = 0; t < now.values.size(); ++t) EXPECT_TRUE(is_zero(t));
      } else if (now.values[0][p] != old.values[0][p]) {
        EXPECT_TRUE(is_zero(0));  // pruned and grown
        ++moved;
      } else if (options.reset == StateReset::kNewBlocks) {
        for (size_t t = 1; t < now.values.size(); ++t) {
          if (result.regrown > 0 && is_zero(0)) continue;
          EXPECT_EQ(now.values[t][p], old.values[t][p]);
        }
      }
    }
  }
  EXPECT_EQ(total_before, total_after);
  EXPECT_EQ(result.pruned + result.survivors, total_after);
  EXPECT_EQ(grown, result.pruned - result.regrown);
  EXPECT_LE(moved, result.regrown);
}

struct Case {
  std::vector<BlockMatrix> matrices;
  std::vector<int64_t> kept;
  WeightBlock block;
  IndexCodec codec = IndexCodec::kPacked;
  std::vector<DType> dtypes;
  RewireOptions options;
};

Case RandomCase(std::mt19937& random) {
  const auto pick = [&](int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random);
  };
  Case c;
  const double densities[] = {0.001, 0.02, 0.3, 0.5, 0.97, 1};
  const double density = densities[pick(0, 5)];
  for (int64_t m = pick(1, 6); m > 0; --m) {
    const BlockMatrix matrix = {pick(1, 30), pick(1, pick(0, 1) ? 9 : 300)};
    c.matrices.push_back(matrix);
    c.kept.push_back(KeptOf(density, matrix));
  }
  if (pick(0, 3) == 0) c.kept.back() = c.matrices.back().blocks();
  if (pick(0, 3) == 0) c.kept[0] = 1;
  if (pick(0, 1)) c.block = {2, 2};
  if (pick(0, 1)) c.codec = IndexCodec::kBitmap;
  for (int64_t t = pick(1, 3); t > 0; --t)
    c.dtypes.push_back(kFloats[pick(0, 2)]);
  RewireOptions& o = c.options;
  if (pick(0, 2) == 0) o.method = RewireMethod::kSet;
  if (pick(0, 1)) o.reset = StateReset::kNewBlocks;
  const float thresholds[] = {
      0, 0.05f, 0.25f, 0.6f, 2, std::numeric_limits<float>::infinity()};
  o.threshold = thresholds[pick(0, 5)];
  const double fractions[] = {0, 0.04, 0.3, 0.9, 1};
  o.fraction = fractions[pick(0, 4)];
  o.target = pick(0, 2000);
  o.seed = static_cast<uint64_t>(pick(0, 1 << 30)) << 20;
  return c;
}

// As training would: some of them equal, some of them zeros of both signs.
void FillValues(std::mt19937& random, size_t tensors, TestPool& pool) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (size_t t = 0; t < tensors; ++t) {
    for (int64_t i = 0; i < pool.values(); ++i) {
      const auto kind = random() % 8;
      float value = uniform(random);
      if (kind == 0) value = (random() % 2 == 0) ? 0.0f : -0.0f;
      if (kind == 1) value = (random() % 2 == 0) ? 0.25f : -0.25f;
      pool.Fill(t, i, value);
    }
  }
}

void ExpectAsNaive(const Case& c, std::mt19937& random) {
  int64_t kept = 0;
  for (const int64_t k : c.kept) kept += k;
  const PoolLayout layout(c.matrices, c.block, kept, c.codec);
  TestPool pool(layout, c.dtypes);
  WriteInitialIndex(layout, c.kept, c.options.seed, pool.index());
  RewireOptions options = c.options;
  for (uint64_t round = 1; round <= 5; ++round) {
    options.step = 100 * round;
    FillValues(random, c.dtypes.size(), pool);
    const NaivePool before = pool.Read();
    NaivePool expected = before;
    const RewireResult naive = NaiveRewire(options, expected);
    if (options.reset == StateReset::kWhole) {
      for (NaiveMatrix& m : expected.matrices) {
        for (size_t t = 1; t < c.dtypes.size(); ++t) {
          for (auto& block : m.values[t]) std::ranges::fill(block, std::byte{});
        }
      }
    }
    const RewireResult result =
        pool.Rewire(options, static_cast<int>(random() % 256));
    pool.Expect(expected);
    EXPECT_EQ(result.pruned, naive.pruned);
    EXPECT_EQ(result.survivors, naive.survivors);
    EXPECT_EQ(result.regrown, naive.regrown);
    ExpectInvariants(before, pool.Read(), options, result);
    // At its ends, NextThreshold's test says what it is.
    if (0 < naive.threshold && naive.threshold < 1e30f) {
      EXPECT_EQ(result.threshold, naive.threshold);
      options.threshold = result.threshold;
    }
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Rewire, IsWhatItsDefinitionSays) {
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    ExpectAsNaive(RandomCase(random), random);
    if (HasFailure()) return;
  }
}

TEST(Rewire, RowsMayBeAsWideAsAnIndexAllows) {
  std::mt19937 random(2);
  for (const IndexCodec codec : {IndexCodec::kPacked, IndexCodec::kBitmap}) {
    Case c{.matrices = {{2, 65535}, {3, 5}, {1, 40'000}},
           .kept = {131'070 - 200, 9, 2000},
           .codec = codec,
           .dtypes = {DType::kBF16, DType::kF32}};
    c.options = {.threshold = 0.3f,
                 .target = 5000,
                 .reset = StateReset::kNewBlocks,
                 .seed = 7};
    ExpectAsNaive(c, random);
  }
}

TEST(Rewire, AStateInBlocksIsResetAsAWhole) {
  const PoolLayout layout({{5, 20}, {4, 30}}, {}, 70, IndexCodec::kPacked);
  const std::vector<int64_t> kept = {30, 40};
  TestPool pool(layout, {DType::kF32});
  WriteInitialIndex(layout, kept, 1, pool.index());
  std::mt19937 random(3);
  FillValues(random, 1, pool);
  GuardedBuffer<uint8_t> codes(70 + 2 * 64);
  GuardedBuffer<uint16_t> scales(4);
  std::ranges::fill(codes.span(), 7);
  std::ranges::fill(scales.span(), 0x3F80);
  const Tensor states[] = {{codes.data(), DType::kU8, scales.data()}};
  std::vector<uint64_t> scratch(RewireScratchBytes(layout) / 8);
  auto* scratch_bytes = reinterpret_cast<std::byte*>(scratch.data());
  RewireOptions options{.threshold = 0.1f, .target = 10, .seed = 1, .step = 9};
  Rewire(layout, pool.index(), pool.tensors()[0], states, options,
         scratch_bytes);
  for (const uint8_t code : codes.span()) EXPECT_EQ(code, 0);
  for (const uint16_t scale : scales.span()) EXPECT_EQ(scale, 0);
  codes.CheckGuards("codes");
  scales.CheckGuards("scales");
  options.reset = StateReset::kNewBlocks;
  EXPECT_DEATH(Rewire(layout, pool.index(), pool.tensors()[0], states, options,
                      scratch_bytes),
               "is_in_blocks");
}

TEST(Rewire, GrowsEveryFreePositionEquallyOften) {
  // Of 40 positions, the second half is kept, and ten of it pruned each time.
  constexpr int kTrials = 4000;
  const PoolLayout layout({{4, 10}}, {}, 20, IndexCodec::kBitmap);
  std::vector<int> times(40);
  for (uint64_t step = 1; step <= kTrials; ++step) {
    TestPool pool(layout, {DType::kF32});
    PoolLayout::Writer writer(layout, pool.index());
    const std::vector<uint16_t> all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    for (int row = 0; row < 4; ++row) {
      writer.Row(std::span(all).first(row < 2 ? 0 : 10));
    }
    for (int64_t i = 0; i < 20; ++i) pool.Fill(0, i, i % 2 == 0 ? 1.0f : 0.1f);
    pool.Rewire({.threshold = 0.5f, .target = 10, .seed = 5, .step = step}, 0);
    const NaivePool after = pool.Read();
    for (size_t p = 0; p < 40; ++p) times[p] += after.matrices[0].kept[p];
  }
  const double error = std::sqrt(kTrials * 0.25);
  for (size_t p = 0; p < 20; ++p) {
    EXPECT_NEAR(times[p], kTrials * 0.5, 4 * error) << p;
  }
  for (size_t p = 20; p < 40; ++p) EXPECT_EQ(times[p], p % 2 ? 0 : kTrials);
}

TEST(Rewire, ScratchIsABitForEachBlockOfTheLargestMatrix) {
  // The 24 convolutions of WRN-28-2.
  std::vector<BlockMatrix> matrices;
  for (const int64_t width : {32, 64, 128}) {
    matrices.push_back({width, 9 * (width == 32 ? 16 : width / 2)});
    for (int i = 0; i < 7; ++i) matrices.push_back({width, 9 * width});
  }
  const PoolLayout layout(matrices, {}, 435'000, IndexCodec::kPacked);
  EXPECT_LE(RewireScratchBytes(layout),
            size_t{128} * 1152 / 8 + size_t{2} * 1152 + size_t{24} * 80);
}

}  // namespace
}  // namespace thimble::kernels
