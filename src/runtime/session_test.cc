// SPDX-License-Identifier: Apache-2.0
//
// The arena, and what a session promises of its state, phase by phase.
#include "thimble/session.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "runtime/arena.h"
#include "runtime/test_session.h"
#include "thimble/plan.h"

namespace thimble {
namespace {

using runtime::Arena;
using runtime::testing::kBatch;
using runtime::testing::kPixels;
using runtime::testing::Layers;
using runtime::testing::TinySession;

bool IsPoisoned(const std::string& bytes) {
  return std::ranges::all_of(bytes, [](char c) { return c == '\xFF'; });
}

TEST(Arena, IsZeroedAndAlignedToPages) {
  auto arena = Arena::Map(1000);
  ASSERT_TRUE(arena.ok()) << arena.status().message();
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->base()) % page, 0u);
  for (size_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(arena->base()[i], std::byte{0}) << i;
  }
  std::memset(arena->base(), 1, 1000);
}

TEST(Arena, IsHandedOnWhole) {
  auto arena = Arena::Map(64);
  ASSERT_TRUE(arena.ok());
  std::byte* base = arena->base();
  {
    const Arena moved(*std::move(arena));
    EXPECT_EQ(moved.base(), base);
    EXPECT_EQ(arena->base(), nullptr);
    std::memset(moved.base(), 1, 64);
  }
}

TEST(Arena, WhatTheSystemRefusesIsAnErrorWithTheSize) {
  const auto arena = Arena::Map(size_t{1} << 60);
  ASSERT_FALSE(arena.ok());
  EXPECT_NE(arena.status().message().find("refuses an arena of"),
            std::string::npos)
      << arena.status().message();
}

TEST(Session, TheSeedAloneDecidesTheInitialState) {
  TinySession a(Layers{});
  TinySession b(Layers{}, {.threads = 2, .inplace = false, .sharing = false});
  a->Initialize(7);
  b->Initialize(7);
  const std::string seven = a.State();
  EXPECT_EQ(seven, b.State());
  a->Initialize(8);
  EXPECT_NE(a.State(), seven);
  a.Feed();
  a->TrainStep(kBatch, 0.5f);
  a->Initialize(7);
  EXPECT_EQ(a.State(), seven);
}

// Keeps the moments that it is told of.
class Moments final : public OpWatcher {
 public:
  void Ran(uint32_t time) override { times.push_back(time); }
  std::vector<uint32_t> times;
};

TEST(Session, TellsItsWatcherOfEachOpInOrder) {
  Moments moments;
  TinySession s(Layers{}, {}, {.watcher = &moments});
  s->Initialize(7);
  s.Feed();
  EXPECT_TRUE(moments.times.empty());
  s->TrainStep(kBatch, 0.5f);
  std::vector<uint32_t> wanted;
  for (uint32_t t = 0; t < s->plan().schedule().size(); ++t) {
    if (s->plan().schedule()[t].phase != Phase::kEvaluate) wanted.push_back(t);
  }
  EXPECT_EQ(moments.times, wanted);
}

TEST(Session, InitialValuesAreWhatTheGraphSays) {
  TinySession s(Layers{});
  s->Initialize(3);
  for (const ParameterState& p : s.plan().parameters()) {
    const Value& value = s.plan().graph().value(p.parameter);
    for (const float x : s->Floats(p.parameter)) {
      if (value.init.kind == Init::Kind::kConstant) {
        EXPECT_EQ(x, value.init.value) << value.name;
      } else {
        EXPECT_LE(std::abs(x), value.init.value) << value.name;
        EXPECT_NE(x, 0.0f);
      }
    }
    for (const float x : s->Floats(p.state[0])) EXPECT_EQ(x, 0.0f);
  }
}

TEST(Session, OnlyUpdateChangesTheState) {
  TinySession s(Layers{});
  s->Initialize(1);
  const std::string before = s.State();
  s.Feed();
  s->Differentiate(kBatch);
  EXPECT_EQ(s.State(), before);
  s->Update(0.1f);
  const std::string after = s.State();
  EXPECT_NE(after, before);
  s.FeedEvaluation();
  s->Evaluate(kBatch);
  EXPECT_EQ(s.State(), after);
}

TEST(Session, AStepThatIsNotAppliedLeavesNoTrace) {
  TinySession skipped(Layers{.dropout = true});
  TinySession plain(Layers{.dropout = true});
  for (TinySession* s : {&skipped, &plain}) (*s)->Initialize(1);
  skipped.Feed(2);
  skipped->Differentiate(kBatch);  // and no update
  for (TinySession* s : {&skipped, &plain}) {
    s->Feed();
    (*s)->TrainStep(kBatch, 0.1f);
  }
  EXPECT_EQ(skipped.State(), plain.State());
}

TEST(Session, ATrainStepIsBothPhasesAndTellsTheLoss) {
  TinySession both(Layers{});
  TinySession one(Layers{});
  for (TinySession* s : {&both, &one}) {
    (*s)->Initialize(1);
    s->Feed();
  }
  const PassResult told = both->Differentiate(kBatch);
  both->Update(0.1f);
  const PassResult step = one->TrainStep(kBatch, 0.1f);
  EXPECT_EQ(told.loss, step.loss);
  EXPECT_EQ(told.metrics[0], step.metrics[0]);
  EXPECT_GT(step.loss, 0.0f);
  EXPECT_EQ(both.State(), one.State());
}

// The rule in thimble/plan.h, in f64; a step of f32 rounds a few times.
TEST(Session, UpdateFollowsTheRuleOfSgd) {
  constexpr double kRate = 0.1, kMomentum = 0.9, kDecay = 0.01;
  constexpr double kEps = std::numeric_limits<float>::epsilon();
  for (const bool nesterov : {false, true}) {
    TinySession s(Layers{.batch_norm = false},
                  {.optimizer = Sgd({.momentum = static_cast<float>(kMomentum),
                                     .weight_decay = static_cast<float>(kDecay),
                                     .nesterov = nesterov})});
    s->Initialize(1);
    for (int step = 0; step < 2; ++step) {
      s.Feed(step);
      s->Differentiate(kBatch);
      std::vector<std::vector<double>> want;
      for (const ParameterState& p : s.plan().parameters()) {
        std::vector<double>& to = want.emplace_back();
        for (size_t i = 0; i < s->Floats(p.parameter).size(); ++i) {
          const double w = s->Floats(p.parameter)[i];
          const double g = s->Floats(p.gradient)[i] + kDecay * w;
          const double v = kMomentum * s->Floats(p.state[0])[i] + g;
          to.push_back(w - kRate * (nesterov ? g + kMomentum * v : v));
        }
      }
      s->Update(static_cast<float>(kRate));
      for (size_t k = 0; k < want.size(); ++k) {
        const auto got = s->Floats(s.plan().parameters()[k].parameter);
        for (size_t i = 0; i < got.size(); ++i) {
          EXPECT_NEAR(got[i], want[k][i],
                      4 * kEps * (std::abs(want[k][i]) + 1));
        }
      }
    }
  }
}

// The numbers of a step are those of its seed, step and parameter: a session
// that goes on after a step draws what one that was never stopped does.
TEST(Session, RoundingIsAFunctionOfSeedAndStep) {
  constexpr Rounding kChance = Rounding::kStochastic;
  for (const auto& optimizer :
       {Sgd({.rounding = kChance, .state = DType::kBF16}),
        Sgd({.state = U8InBlocks()}),
        Adam({.rounding = kChance, .state = DType::kF16}),
        Adam({.state = U8InBlocks()})}) {
    const PlanOptions options = {.optimizer = optimizer};
    TinySession whole(Layers{}, options), part(Layers{}, options);
    const ParameterState weight = whole.plan().parameters()[0];
    const auto one_step = [&](TinySession& s, uint64_t seed, uint64_t steps) {
      s->Initialize(seed);
      EXPECT_EQ(s.BytesOf(weight.state[0]).find_first_not_of('\0'),
                std::string::npos);
      // What is rounded shall not differ.
      std::ranges::fill(s->Floats(weight.parameter), 0.25f);
      s->GoOnAfter(seed, steps);
      s.Feed();
      s->TrainStep(kBatch, 0.1f);
      return s.BytesOf(weight.state[0]);
    };
    const std::string first = one_step(whole, 7, 0);
    EXPECT_EQ(one_step(part, 7, 0), first);
    EXPECT_NE(one_step(part, 7, 1), first);
    EXPECT_NE(one_step(part, 8, 0), first);
  }
}

// The rule in thimble/optimizer.h, in f64, with the step's own number.
TEST(Session, UpdateFollowsTheRuleOfAdam) {
  constexpr double kEps = std::numeric_limits<float>::epsilon();
  TinySession s(Layers{.batch_norm = false}, {.optimizer = Adam()});
  s->Initialize(1);
  const ParameterState p = s.plan().parameters()[0];
  const auto wide = [&](ValueId v) {
    const auto floats = s->Floats(v);
    return std::vector<double>(floats.begin(), floats.end());
  };
  for (int t = 1; t <= 3; ++t) {
    s.Feed(t);
    s->Differentiate(kBatch);
    const auto w = wide(p.parameter), g = wide(p.gradient);
    const auto m = wide(p.state[0]), v = wide(p.state[1]);
    s->Update(0.01f);
    for (size_t i = 0; i < w.size(); ++i) {
      const double first = 0.9 * m[i] + 0.1 * g[i];
      const double second = 0.999 * v[i] + 0.001 * g[i] * g[i];
      const double step = first / (1 - std::pow(0.9, t)) /
                          (std::sqrt(second / (1 - std::pow(0.999, t))) + 1e-8);
      EXPECT_NEAR(s->Floats(p.parameter)[i], w[i] - 0.01 * step,
                  8 * kEps * (std::abs(w[i]) + 0.1));
    }
  }
}

TEST(Session, RowsBehindTheCountAreNotLookedAt) {
  TinySession s(Layers{});
  s->Initialize(1);
  const auto with = [&](uint8_t rest) {
    s.Feed();
    std::ranges::fill(s->TrainFeed<uint8_t>("images").subspan(2 * kPixels),
                      rest);
    const PassResult trained = s->Differentiate(2);
    const std::string gradients = s.Gradients();
    // In bytes that training used: only now.
    s.FeedEvaluation();
    std::ranges::fill(s->EvaluateFeed<uint8_t>("images").subspan(2 * kPixels),
                      rest);
    const PassResult tested = s->Evaluate(2);
    return std::pair(gradients, std::pair(trained.loss, tested.loss));
  };
  EXPECT_EQ(with(0), with(200));
}

TEST(Session, PartsOfAStepAddUpToTheGradientOfTheWhole) {
  TinySession whole(Layers{.batch_norm = false});
  TinySession parts(Layers{.batch_norm = false}, {.microbatch = 2});
  whole->Initialize(1);
  parts->Initialize(1);
  whole.Feed();
  const double loss = whole->Differentiate(kBatch).loss;
  double sum = 0;
  for (int64_t first = 0; first < kBatch; first += 2) {
    parts.Feed(first);
    sum += parts->Differentiate({.first = first, .count = 2, .total = kBatch})
               .loss;
  }
  constexpr double kEps = std::numeric_limits<float>::epsilon();
  EXPECT_NEAR(sum / 2, loss, 4 * kEps * loss);
  const std::vector<float> want = whole.GradientsAsFloats();
  const std::vector<float> got = parts.GradientsAsFloats();
  ASSERT_EQ(got.size(), want.size());
  // Each is a sum over the rows of probabilities times pixels in [-2, 2].
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], 2 * kBatch * 2 * kEps) << i;
  }
  // A first part forgets what was there.
  parts.Feed();
  parts->Differentiate({.first = 0, .count = 2, .total = kBatch});
  parts.Feed(2);
  parts->Differentiate({.first = 2, .count = 2, .total = kBatch});
  EXPECT_EQ(parts.GradientsAsFloats(), got);
}

TEST(Session, ARunGoesOnWithTheRandomNumbersOfItsStep) {
  const auto after = [](uint64_t steps, bool by_steps) {
    TinySession s(Layers{.batch_norm = false, .dropout = true});
    s->Initialize(7);
    if (by_steps) {
      for (uint64_t i = 0; i < steps; ++i) {
        s.Feed();
        s->TrainStep(kBatch, 0.0f);  // changes no weight
      }
    } else {
      s->GoOnAfter(7, steps);
    }
    s.Feed();
    s->Differentiate(kBatch);
    return s.Gradients();
  };
  EXPECT_EQ(after(0, true), after(0, false));
  EXPECT_EQ(after(3, true), after(3, false));
  EXPECT_NE(after(3, false), after(0, false));
}

TEST(Session, WithoutTrainingThereIsOnlyTheEvaluation) {
  TinySession trained(Layers{});
  TinySession s(Layers{}, {.training = false});
  EXPECT_LT(s.plan().arena_bytes(), trained.plan().arena_bytes());
  s->Initialize(1);
  trained->Initialize(1);
  s.FeedEvaluation();
  trained.FeedEvaluation();
  EXPECT_EQ(s->Evaluate(kBatch).loss, trained->Evaluate(kBatch).loss);
}

TEST(Poison, ChangesNoResult) {
  TinySession plain(Layers{.dropout = true});
  TinySession poisoned(Layers{.dropout = true}, {}, {.poison = true});
  for (TinySession* s : {&plain, &poisoned}) {
    (*s)->Initialize(5);
    for (int64_t step = 0; step < 3; ++step) {
      s->Feed(step);
      (*s)->TrainStep(kBatch, 0.1f);
    }
    s->FeedEvaluation();
  }
  EXPECT_EQ(plain.State(), poisoned.State());
  EXPECT_EQ(plain->Evaluate(kBatch).loss, poisoned->Evaluate(kBatch).loss);
}

TEST(Poison, FillsWhatWasNotInitialised) {
  TinySession s(Layers{}, {}, {.poison = true});
  EXPECT_TRUE(IsPoisoned(s.State()));
  s->Initialize(1);
  EXPECT_FALSE(IsPoisoned(s.State()));
}

// Without sharing nothing else is written over what has ended.
TEST(Poison, FillsEveryBufferWhoseLifeHasEnded) {
  TinySession s(Layers{}, {.sharing = false}, {.poison = true});
  s->Initialize(1);
  s.Feed();
  s->Differentiate(kBatch);
  EXPECT_FALSE(IsPoisoned(s.Gradients()));
  s->Update(0.1f);
  EXPECT_TRUE(IsPoisoned(s.Gradients()));
  size_t ended = 0;
  for (uint32_t i = 0; i < s.plan().graph().values().size(); ++i) {
    const Interval live = s.plan().BufferOf({i}).live;
    if (live.begin > 0 || live.end == s.plan().schedule().size()) continue;
    ++ended;
    EXPECT_TRUE(IsPoisoned(s.BytesOf({i})))
        << s.plan().graph().values()[i].name;
  }
  EXPECT_GT(ended, 10u);
  EXPECT_FALSE(IsPoisoned(s.State()));
}

}  // namespace
}  // namespace thimble
