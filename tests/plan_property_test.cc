// SPDX-License-Identifier: Apache-2.0
//
// What holds for the plan of every network, over random ones, and what a run
// says must not depend on how the plan uses memory or threads.
// THIMBLE_RANDOM_NETS sets their number.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "gradient_check.h"
#include "graph/op.h"
#include "ops/batch_norm.h"
#include "random_net.h"
#include "thimble/plan.h"
#include "thimble/session.h"

namespace thimble::testing {
namespace {

uint64_t RandomNets() {
  const char* text = std::getenv("THIMBLE_RANDOM_NETS");
  return text == nullptr ? 500 : std::strtoull(text, nullptr, 10);
}

// Runs body(model, seed) for each random network.
template <typename F>
void ForEachNet(uint64_t nets, int64_t scale, const F& body) {
  for (uint64_t seed = 0; seed < nets; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed) +
                 " scale=" + std::to_string(scale));
    const Result<Model> model = RandomNet(seed, scale).Build();
    ASSERT_TRUE(model.ok()) << model.status().message();
    body(*model, seed);
    if (::testing::Test::HasFailure()) return;  // one is enough to look at
  }
}

Plan PlanOf(const Model& model, bool inplace, int threads,
            PlanOptions options = {}) {
  options.inplace = inplace;
  options.threads = threads;
  Result<Plan> plan = MakePlan(model, options);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *std::move(plan);
}

size_t MostLive(const Plan& plan) {
  size_t most = 0;
  for (uint32_t t = 0; t < plan.schedule().size(); ++t) {
    size_t live = 0;
    for (const Buffer& b : plan.buffers()) {
      if (b.live.begin <= t && t < b.live.end) live += b.bytes;
    }
    most = std::max(most, live);
  }
  return most;
}

void ExpectSound(const Plan& plan) {
  const Status status = ValidatePlan(plan);
  EXPECT_TRUE(status.ok()) << status.message() << "\n" << plan.Explain();
  size_t sum = 0;
  for (const Buffer& b : plan.buffers()) sum += b.bytes;
  EXPECT_EQ(plan.lower_bound(), MostLive(plan));
  EXPECT_LE(plan.lower_bound(), plan.arena_bytes());
  EXPECT_LE(plan.arena_bytes(), sum);
  size_t roles = 0;
  for (size_t role = 0; role < kRoles; ++role) {
    roles += plan.peak_bytes(static_cast<Role>(role));
  }
  EXPECT_EQ(roles, plan.lower_bound());
}

// No two buffers of a phase on the same bytes, whenever they are used.
void ExpectNothingShared(const Plan& plan) {
  const auto buffers = plan.buffers();
  uint32_t trained = 0;
  for (const ScheduledOp& op : plan.schedule()) {
    trained += op.phase != Phase::kEvaluate;
  }
  for (const Buffer& a : buffers) {
    for (const Buffer& b : buffers) {
      if (&a == &b || a.offset > b.offset) continue;
      const bool trains = a.live.begin < trained && b.live.begin < trained;
      const bool evaluates = a.live.end > trained && b.live.end > trained;
      if (!trains && !evaluates) continue;
      EXPECT_LE(a.offset + a.bytes, b.offset) << a.name << ", " << b.name;
    }
  }
}

TEST(PlanProperty, EveryPlanIsValidAndBetweenMostLiveAndSum) {
  uint64_t smaller = 0;
  const auto check = [&](const Model& model, uint64_t) {
    for (const int threads : {1, 2, 3}) {
      const Plan in_place = PlanOf(model, true, threads);
      const Plan apart = PlanOf(model, false, threads);
      ExpectSound(in_place);
      ExpectSound(apart);
      EXPECT_LE(in_place.lower_bound(), apart.lower_bound());
      if (in_place.arena_bytes() < apart.arena_bytes()) ++smaller;
      if (threads != 2) continue;
      const Plan unshared = PlanOf(model, true, threads, {.sharing = false});
      ExpectSound(unshared);
      ExpectNothingShared(unshared);
      EXPECT_LE(in_place.arena_bytes(), unshared.arena_bytes());
    }
  };
  ForEachNet(RandomNets(), 1, check);
  ForEachNet(RandomNets() / 5, 8, check);
  EXPECT_GT(smaller, 0u) << "overwriting inputs never saved anything";
}

bool HasBatchNorm(const Model& model) {
  return std::ranges::any_of(
      model.graph.ops(), [](const Op& op) { return Is<ops::BatchNorm>(op); });
}

// Whether every batch norm sees several values per channel, with `images` at a
// time.
bool HasStatistics(const Model& model, int64_t images) {
  return std::ranges::all_of(model.graph.ops(), [&](const Op& op) {
    return !Is<ops::BatchNorm>(op) ||
           images *
                   model.graph.value(op.inputs[0]).spec.shape.elements_from(2) >
               1;
  });
}

// How the step of a random network may be divided: by its largest divisor below
// the batch, in microbatches or, for batch norms, in one pass.
std::vector<PlanOptions> Divisions(const Model& model) {
  int64_t divisor = std::max<int64_t>(1, model.batch() / 2);
  while (model.batch() % divisor != 0) --divisor;
  if (!HasStatistics(model, divisor)) divisor = model.batch();
  std::vector<PlanOptions> divisions = {{.microbatch = divisor},
                                        {.microbatch = divisor, .fuse = false}};
  if (HasBatchNorm(model)) {
    divisions.push_back({.ghost_batch = divisor});
    divisions.push_back({.ghost_batch = divisor, .fuse = false});
    if (HasStatistics(model, 1)) {
      divisions.push_back({.microbatch = divisor, .ghost_batch = 1});
    }
  }
  return divisions;
}

TEST(PlanProperty, EveryPlanWithMicrobatchesIsValid) {
  const auto check = [&](const Model& model, uint64_t) {
    for (const PlanOptions& options : Divisions(model)) {
      for (const bool inplace : {true, false}) {
        ExpectSound(PlanOf(model, inplace, 2, options));
      }
    }
  };
  ForEachNet(RandomNets() / 2, 1, check);
  ForEachNet(RandomNets() / 10, 8, check);
}

TEST(PlanProperty, PlansOfRandomNetsAreCloseToTheirLowerBound) {
  uint64_t nets = 0;
  uint64_t exact = 0;
  double worst = 1;
  ForEachNet(RandomNets() / 2, 8, [&](const Model& model, uint64_t) {
    const Plan plan = PlanOf(model, true, 1);
    const double ratio = static_cast<double>(plan.arena_bytes()) /
                         static_cast<double>(plan.lower_bound());
    ++nets;
    if (plan.arena_bytes() == plan.lower_bound()) ++exact;
    worst = std::max(worst, ratio);
  });
  RecordProperty("exact", std::to_string(exact));
  RecordProperty("worst", std::to_string(worst));
  // Measured; a change that places worse must be noticed.
  EXPECT_GE(exact * 100, nets * 95);
  EXPECT_LE(worst, 1.2);
}

TEST(PlanProperty, TheSameNetworkGetsTheSamePlan) {
  ForEachNet(RandomNets() / 5, 8, [](const Model& model, uint64_t seed) {
    const std::string text = PlanOf(model, true, 2).Explain();
    EXPECT_EQ(PlanOf(model, true, 2).Explain(), text);
    const Result<Model> again = RandomNet(seed, 8).Build();
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(PlanOf(*again, true, 2).Explain(), text);
  });
}

// Everything that a run leaves behind, bit for bit.
struct Trace {
  std::vector<float> losses;
  std::vector<double> correct;
  std::vector<float> state;  // parameters, velocities, running statistics

  friend bool operator==(const Trace& a, const Trace& b) {
    const auto same = [](const std::vector<float>& x,
                         const std::vector<float>& y) {
      return x.size() == y.size() &&
             std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
    };
    return same(a.losses, b.losses) && a.correct == b.correct &&
           same(a.state, b.state);
  }
};

// Three steps, the middle one with a batch that is not full, and evaluations.
Trace TraceOf(const Model& model, const Plan& plan, bool poison,
              uint64_t seed) {
  auto created = Session::Create(plan, {.poison = poison});
  EXPECT_TRUE(created.ok()) << created.status().message();
  Session& session = **created;
  session.Initialize(seed);
  LoadParameters(RandomParameters(model, seed), session);
  Trace trace;
  const auto note = [&trace](const PassResult& result) {
    trace.losses.push_back(result.loss);
    trace.correct.push_back(result.metrics[0]);
  };
  const int64_t full = plan.batch();
  const int64_t part = (full + 1) / 2;
  for (const int64_t count : {full, part, full}) {
    const uint64_t step = trace.losses.size();
    note(Differentiate(RandomBatch(model, count, seed + step), session));
    session.Update(0.01f);
    note(Evaluate(RandomBatch(model, full + 1 - count, seed), session));
  }
  const auto keep = [&](ValueId v) {
    const auto values = session.Floats(v);
    trace.state.insert(trace.state.end(), values.begin(), values.end());
  };
  for (const ParameterState& p : plan.parameters()) {
    keep(p.parameter);
    for (ValueId v : p.state) keep(v);
  }
  for (ValueId v : plan.statistics()) keep(v);
  return trace;
}

void ExpectOneResult(uint64_t nets, int64_t scale) {
  ForEachNet(nets, scale, [](const Model& model, uint64_t seed) {
    const Plan plan = PlanOf(model, true, 1);
    const Trace plain = TraceOf(model, plan, false, seed);
    for (const float loss : plain.losses) ASSERT_TRUE(std::isfinite(loss));
    for (const float x : plain.state) ASSERT_TRUE(std::isfinite(x));
    EXPECT_TRUE(TraceOf(model, plan, true, seed) == plain) << "poison";
    const Plan apart = PlanOf(model, false, 1);
    EXPECT_TRUE(TraceOf(model, apart, false, seed) == plain)
        << "nothing in place";
    const Plan unshared = PlanOf(model, true, 1, {.sharing = false});
    EXPECT_TRUE(TraceOf(model, unshared, true, seed) == plain)
        << "nothing shared";
    // Threads cost most of the time where there are fewer cores than them.
    if (seed % 5 != 0) return;
    const Plan threads = PlanOf(model, true, 3);
    EXPECT_TRUE(TraceOf(model, threads, false, seed) == plain) << "3 threads";
  });
}

TEST(PlanProperty, ResultsDoNotDependOnPoisonSharedBytesOrThreads) {
  ExpectOneResult(RandomNets(), 1);
  // Fewer large ones: they take longer, but their buffers are on top of each
  // other and not under one kernel's scratch.
  ExpectOneResult(RandomNets() / 20, 4);
}

TEST(PlanProperty, ResultsDoNotDependOnWhatIsRecomputed) {
  uint64_t smaller = 0;
  const auto check = [&](const Model& model, uint64_t seed) {
    // One strategy per network, and both ways to lower it.
    constexpr const char* kStrategies[] = {
        "no-bn", "every-1", "every-2",     "residual-1", "residual-2*",
        "sqrt",  "revolve", "recursive-1", "revolve-1"};
    PlanOptions options{.fuse = seed % 2 == 0};
    const Result<Plan> plain = MakePlan(model, options);
    options.recompute = kStrategies[seed % std::size(kStrategies)];
    options.two_pass = true;  // where it helps
    const Result<Plan> plan = MakePlan(model, options);
    ASSERT_TRUE(plain.ok() && plan.ok());
    ExpectSound(*plan);
    if (plan->lower_bound() < plain->lower_bound()) ++smaller;
    const Trace trace = TraceOf(model, *plain, false, seed);
    EXPECT_TRUE(TraceOf(model, *plan, true, seed) == trace)
        << options.recompute;
  };
  ForEachNet(RandomNets(), 1, check);
  ForEachNet(RandomNets() / 20, 4, check);
  EXPECT_GT(smaller, 0u) << "recomputing never saved anything";
}

TEST(PlanProperty, NorDoThoseOfMicrobatchesAndGroups) {
  ForEachNet(RandomNets() / 5, 1, [](const Model& model, uint64_t seed) {
    for (PlanOptions options : Divisions(model)) {
      const Result<Plan> plain = MakePlan(model, options);
      options.recompute = seed % 2 == 0 ? "recursive-1" : "residual-1*";
      const Result<Plan> plan = MakePlan(model, options);
      ASSERT_TRUE(plain.ok() && plan.ok());
      ExpectSound(*plan);
      EXPECT_TRUE(TraceOf(model, *plan, true, seed) ==
                  TraceOf(model, *plain, false, seed))
          << options.recompute;
    }
  });
}

TEST(PlanProperty, ResultsWithMicrobatchesDoNotDependOnTheirPlanEither) {
  ForEachNet(RandomNets() / 5, 1, [](const Model& model, uint64_t seed) {
    for (const PlanOptions& options : Divisions(model)) {
      const Plan plan = PlanOf(model, true, 1, options);
      const Trace plain = TraceOf(model, plan, false, seed);
      for (const float x : plain.state) ASSERT_TRUE(std::isfinite(x));
      EXPECT_TRUE(TraceOf(model, plan, true, seed) == plain) << "poison";
      const Plan apart = PlanOf(model, false, 1, options);
      EXPECT_TRUE(TraceOf(model, apart, true, seed) == plain)
          << "nothing in place";
      if (seed % 10 != 0) continue;
      const Plan threads = PlanOf(model, true, 3, options);
      EXPECT_TRUE(TraceOf(model, threads, false, seed) == plain) << "3 threads";
    }
  });
}

TEST(PlanProperty, GradientsOfMicrobatchesAreExact) {
  const uint64_t nets = std::min<uint64_t>(100, RandomNets());
  ForEachNet(nets, 1, [](const Model& model, uint64_t seed) {
    if (model.batch() != 4) return;  // in two parts of two rows
    const int64_t count = seed % 2 == 0 ? 4 : 3;
    const ExactPoint point = FindPoint(model, count, seed * 1000, 2);
    ExpectGradients(model, point, {.microbatch = 2});
    if (!HasBatchNorm(model)) return;
    ExpectGradients(model, point, {.ghost_batch = 2});
  });
}

TEST(PlanProperty, GradientsAreExact) {
  const uint64_t nets = std::min<uint64_t>(100, RandomNets());
  ForEachNet(nets, 1, [](const Model& model, uint64_t seed) {
    const int64_t count =
        seed % 2 == 0 ? model.batch() : (model.batch() + 1) / 2;
    ExpectGradients(model, FindPoint(model, count, seed * 1000));
  });
}

}  // namespace
}  // namespace thimble::testing
