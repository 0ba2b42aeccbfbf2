// SPDX-License-Identifier: Apache-2.0
//
// `auto` against a brute force over everything that recomputation could do.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "oracle_front.h"
#include "planner/fuse.h"
#include "planner/placed_buffers.h"
#include "planner/program.h"
#include "planner/recompute/auto.h"
#include "planner/recompute/exact_front.h"
#include "planner/recompute/rewrite.h"
#include "planner/recompute/script_meter.h"
#include "planner/recompute/strategy_script.h"
#include "planner/schedule.h"
#include "random_net.h"
#include "thimble/network.h"
#include "thimble/plan.h"

namespace thimble::testing {
namespace {

// A network made from a seed, of at most twelve ops: a chain, or a chain of
// residual blocks, in which some layers change the shape.
class SmallChain {
 public:
  explicit SmallChain(uint64_t seed)
      : random_(seed, 1, 0), net_("chain", 2 + Next(4)) {}

  Model Build() {
    x_ = net_.Images({.channels = channels_, .height = 24, .width = 24});
    const int64_t layers = 2 + Next(kMaxOps - kEnds - 1);
    while (layers_ < layers) AddLayers(layers - layers_);
    const ValueId rows =
        Next(2) == 0 ? net_.GlobalAveragePool(x_) : net_.Flatten(x_);
    Result<Model> model =
        net_.Finish(net_.Linear(Name(), rows, 2 + Next(9), false));
    EXPECT_TRUE(model.ok()) << model.status().message();
    return *std::move(model);
  }

 private:
  static constexpr int64_t kMaxOps = 12;
  static constexpr int64_t kEnds = 4;  // normalised images, two layers, loss

  int64_t Next(int64_t n) {
    return static_cast<int64_t>(random_.Block(next_++)[0] %
                                static_cast<uint64_t>(n));
  }
  std::string Name() { return "l" + std::to_string(named_++); }

  ValueId Conv(ValueId x, int64_t channels, int64_t stride) {
    ++layers_;
    return net_.Conv2d(Name(), x,
                       {.channels = channels,
                        .kernel = 1 + 2 * Next(2),
                        .stride = stride,
                        .padding = 0});
  }
  ValueId SameConv(ValueId x) {
    ++layers_;
    return net_.Conv2d(Name(), x, {.channels = channels_});
  }
  ValueId Norm(ValueId x) {
    ++layers_;
    return net_.BatchNorm(Name(), x);
  }
  ValueId Relu(ValueId x) {
    ++layers_;
    return net_.Relu(x);
  }

  void AddLayers(int64_t most) {
    const bool wide = side_ >= 8;
    switch (Next(7)) {
      case 0:
        x_ = Norm(x_);
        return;
      case 1:
        x_ = Relu(x_);
        return;
      case 2:
        if (most < 4) return;
        x_ = Add(SameConv(Relu(Norm(x_))));
        return;
      case 3:
        if (most < 3) return;
        x_ = Add(Norm(SameConv(x_)));
        return;
      case 4:
        if (most < 3) return;
        x_ = SameConv(Relu(Norm(x_)));
        return;
      case 5:
        if (!wide) return;
        ++layers_;
        side_ /= 2;
        x_ = Next(2) == 0 ? net_.MaxPool(x_) : net_.AveragePool(x_);
        return;
      default: {
        if (!wide) return;
        channels_ = 1 + Next(6);
        const int64_t stride = 1 + Next(2);
        // With a kernel of three, two fewer, and at least half of that.
        side_ = (side_ - 2) / stride;
        x_ = Conv(x_, channels_, stride);
        return;
      }
    }
  }
  ValueId Add(ValueId y) {
    ++layers_;
    return net_.Add(y, x_);
  }

  RandomStream random_;
  uint32_t next_ = 0;
  int named_ = 0;
  Network net_;
  ValueId x_;
  int64_t channels_ = 2;
  int64_t side_ = 24;  // at least
  int64_t layers_ = 0;
};

// How `auto` compares with the oracle at the budgets at which the oracle's cost
// changes.
struct Comparison {
  int points = 0;
  int equal = 0;     // as planned and placed
  double worst = 1;  // FLOPs of a step, over the oracle's
};

planner::Program ProgramOf(const Model& model, const PlanOptions& options,
                           int64_t microbatches) {
  return planner::Differentiate(options.fuse ? planner::Fuse(model) : model,
                                options, microbatches);
}

TEST(ScriptMeter, CountsWhatTheRewrittenProgramTakes) {
  int scripts = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const Result<Model> model = RandomNet(seed, 1 + 3 * (seed % 2)).Build();
    ASSERT_TRUE(model.ok()) << model.status().message();
    const PlanOptions options{.threads = 1 + static_cast<int>(seed % 3),
                              .fuse = seed % 4 != 0,
                              .inplace = seed % 5 != 0};
    const planner::Program program =
        ProgramOf(*model, options, 1 + static_cast<int64_t>(seed % 2));
    const planner::Chain chain = planner::FindChain(program);
    planner::ScriptMeter meter(program, options);
    for (const char* name :
         {"none", "no-bn", "every-1", "every-2", "residual-1", "residual-2*",
          "sqrt", "recursive-1", "revolve-1"}) {
      SCOPED_TRACE(std::to_string(seed) + " " + name);
      const planner::Script script = planner::ScriptOf(
          program, chain, *planner::ParseStrategy(name), meter);
      const planner::ScriptCosts costs = meter.Measure(script);
      const planner::Program rewritten = planner::Rewrite(program, script);
      EXPECT_EQ(costs.most_live,
                std::ranges::max(planner::LiveBytes(rewritten, options)));
      EXPECT_EQ(
          costs.flops,
          planner::CountFlops(rewritten.graph, planner::MakeSchedule(rewritten))
              .step);
      ++scripts;
    }
  }
  EXPECT_GT(scripts, 1000);
}

// The oracle counts live bytes. The arena has to keep to them: a placement with
// a gap takes another plan, with more work.
void Compare(const Model& model, const PlanOptions& options, Comparison& sum) {
  const Plan none = *MakePlan(model, options);
  OracleFront oracle(none);
  const std::vector<OracleFront::Point> front = oracle.Find();
  ASSERT_FALSE(front.empty());
  ASSERT_EQ(front.front().work, 0);
  const planner::Program program = ProgramOf(model, options, 1);
  planner::Alternatives all(program, options);
  for (const OracleFront::Point& point : front) {
    const int64_t least = none.flops_step() + point.work;
    const std::optional<size_t> chosen =
        all.LeastWorkWithin(static_cast<uint64_t>(point.bytes));
    ++sum.points;
    if (!chosen.has_value()) continue;
    const int64_t flops = all.FlopsOf(*chosen);
    ASSERT_GE(flops, least) << "the oracle is no oracle";
    ASSERT_LE(all.ArenaOf(*chosen), static_cast<size_t>(point.bytes));
    sum.equal += flops == least;
    sum.worst = std::max(
        sum.worst, static_cast<double>(flops) / static_cast<double>(least));
  }
  // Nothing fits into fewer bytes than the oracle's fewest.
  for (size_t i = 0; i < all.size(); ++i) {
    ASSERT_GE(static_cast<int64_t>(all.LiveBytesOf(i)), front.back().bytes);
  }
}

void Record(const Comparison& sum) {
  ::testing::Test::RecordProperty("points", sum.points);
  ::testing::Test::RecordProperty("equal", sum.equal);
  ::testing::Test::RecordProperty("worst", std::to_string(sum.worst));
}

TEST(AutoOracle, IsMetOnChainsAndChainsOfBlocks) {
  Comparison sum;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Compare(SmallChain(seed).Build(), {.threads = 1, .fuse = seed % 2 == 0},
            sum);
    if (HasFatalFailure()) return;
  }
  Record(sum);
  EXPECT_GT(sum.points, 500);
  EXPECT_EQ(sum.equal, sum.points);
}

// Several branches, values with many readers, branches that end nowhere,
// recurrence; as many values as the oracle can do in no time.
TEST(AutoOracle, ReportsTheGapOnOtherGraphs) {
  Comparison sum;
  for (uint64_t seed = 0; seed < 80; ++seed) {
    const Result<Model> model = RandomNet(seed, 4).Build();
    ASSERT_TRUE(model.ok()) << model.status().message();
    const PlanOptions options{.threads = 1};
    if (OracleFront(*MakePlan(*model, options)).cells() > 13) continue;
    SCOPED_TRACE(seed);
    Compare(*model, options, sum);
    if (HasFatalFailure()) return;
  }
  Record(sum);
  EXPECT_GT(sum.points, 30);
}

}  // namespace
}  // namespace thimble::testing
