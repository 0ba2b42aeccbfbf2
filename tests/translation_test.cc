// SPDX-License-Identifier: Apache-2.0
//
// Translation models as wholes: what a sentence gives depends on no other one,
// and weights do not depend on threads, on what is computed again, or on the
// budget. All of it with dropout.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "closest_plan.h"
#include "thimble/optimizer.h"
#include "translator.h"

namespace thimble::testing {
namespace {

constexpr double kDropout = 0.3;
constexpr int64_t kTokens = 24;

// Sentences longer than a kernel of 7 and shorter than one of 3; as many
// tokens in each half as half of a plan takes.
Pairs FirstHalf() { return PairsOf({{5, 4}, {1, 7}}, 1); }
Pairs SecondHalf() { return PairsOf({{9, 1}, {2, 3}, {1, 5}}, 2); }
Pairs Whole() {
  Pairs pairs = FirstHalf();
  const Pairs more = SecondHalf();
  pairs.insert(pairs.end(), more.begin(), more.end());
  return pairs;
}
std::vector<Pairs> OneByOne() {
  std::vector<Pairs> parts;
  for (const SentencePair& pair : Whole()) parts.push_back({pair});
  return parts;
}

double Norm(const std::vector<float>& a) {
  double squares = 0;
  for (const float x : a) squares += static_cast<double>(x) * x;
  return std::sqrt(squares);
}
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> off(a.size());
  for (size_t i = 0; i < a.size(); ++i) off[i] = a[i] - b[i];
  return Norm(off);
}

// ---- Sentences of a batch

// The rows that the loss reads, after an evaluation: nothing lies on them.
std::vector<float> LastRows(Translator& translator) {
  const Graph& graph = translator.plan().graph();
  const ValueId loss = translator.plan().evaluate_ends().loss;
  return ReadStored(translator.session(),
                    graph.op(graph.value(loss).producer).inputs[0]);
}

TEST(Translation, ASentenceGivesTheSameBitsInAnyBatch) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int threads : {1, 3}) {
      Translator translator(
          TranslationModel(kTokens, kDropout),
          {.precision = Precision::All(dtype), .threads = threads}, false);
      translator.Evaluate(Whole());
      const std::vector<float> together = LastRows(translator);
      size_t row = 0;
      for (const SentencePair& pair : Whole()) {
        translator.Evaluate({pair});
        const std::vector<float> alone = LastRows(translator);
        const size_t values = pair.target.size() * 16;
        for (size_t i = 0; i < values; ++i) {
          ASSERT_EQ(together[row * 16 + i], alone[i])
              << DTypeName(dtype) << " row " << row << " value " << i;
        }
        row += pair.target.size();
      }
      EXPECT_EQ(row, 20u);
    }
  }
}

TEST(Translation, ASentenceReadsNoOtherOne) {
  Translator translator(TranslationModel(kTokens, 0), {}, false);
  translator.Evaluate(Whole());
  const std::vector<float> before = LastRows(translator);
  Pairs pairs = Whole();
  pairs[2].source[8] = (pairs[2].source[8] + 1) % kSourceWords;
  pairs[3].target[2] = (pairs[3].target[2] + 1) % kTargetWords;
  translator.Evaluate(pairs);
  const std::vector<float> after = LastRows(translator);
  std::vector<size_t> changed;
  for (size_t row = 0; row < 20; ++row) {
    if (std::memcmp(&before[row * 16], &after[row * 16], 64) != 0) {
      changed.push_back(row);
    }
  }
  // The third pair's one row of a target; of the fourth's three, the last:
  // none looks at what comes behind it.
  EXPECT_EQ(changed, (std::vector<size_t>{11, 14}));
}

// A mask is a function of the place in the step, so parts draw those of the
// whole. Only sums over rows are made in another order: an epsilon for each
// token. A key's bias has no gradient but what rounding leaves of its rows',
// whose size that of the key's weight has.
TEST(Translation, PartsOfAStepAddUpToTheWhole) {
  const Model model = TranslationModel(kTokens, kDropout);
  Translator whole(model, {}, true);
  const double loss = whole.Differentiate({Whole()});
  const auto want = whole.Gradients();
  const auto size_of = [&](std::string name) {
    const size_t at = name.find(".key.bias");
    if (at != std::string::npos) name = name.substr(0, at) + ".key.weight";
    return Norm(want.at(name));
  };
  for (const std::vector<Pairs>& parts :
       {std::vector<Pairs>{FirstHalf(), SecondHalf()}, OneByOne()}) {
    Translator halves(model, {.microbatch = kTokens / 2}, true);
    const double eps = std::numeric_limits<float>::epsilon();
    EXPECT_NEAR(halves.Differentiate(parts), loss,
                static_cast<double>(parts.size() + 1) * eps * loss);
    for (const auto& [name, gradient] : halves.Gradients()) {
      EXPECT_LE(Distance(gradient, want.at(name)),
                static_cast<double>(kTokens) * eps * size_of(name))
          << name;
    }
  }
}

TEST(Translation, DropsInTrainingAloneAndOtherwiseInEachStep) {
  Translator drops(TranslationModel(kTokens, kDropout), {}, true);
  Translator keeps(TranslationModel(kTokens, 0), {}, true);
  EXPECT_EQ(drops.Evaluate(Whole()).loss, keeps.Evaluate(Whole()).loss);
  EXPECT_EQ(keeps.Differentiate({Whole()}), keeps.Evaluate(Whole()).loss);
  const auto loss_after = [&](uint64_t steps) {
    drops.session().GoOnAfter(1, steps);
    return drops.Differentiate({Whole()});
  };
  EXPECT_NE(loss_after(0), keeps.Differentiate({Whole()}));
  EXPECT_NE(loss_after(0), loss_after(1));
  EXPECT_EQ(loss_after(1), loss_after(1));
}

// ---- Plans

const std::vector<std::string> kStrategies = {
    "none",        "no-bn",       "every-1",    "every-2",
    "every-5",     "residual-1",  "residual-2", "residual-3",
    "residual-1*", "residual-2*", "sqrt",       "recursive-1",
    "recursive-2", "revolve",     "revolve-1",  "auto"};

// What two steps leave; of two parts where the microbatch is half a batch.
std::string TrainedBits(const Model& model, const PlanOptions& options,
                        bool poison) {
  Translator translator(model, options, poison);
  translator.Train(options.microbatch > 0
                       ? std::vector<Pairs>{FirstHalf(), SecondHalf()}
                       : std::vector<Pairs>{Whole()},
                   2);
  return translator.Bits();
}

// The same for every strategy, each with one, two or three threads, or with all
// of them.
void ExpectOneResult(PlanOptions options, bool all_threads = false) {
  const Model model = TranslationModel(kTokens, kDropout);
  const std::string want = TrainedBits(model, options, false);
  int next = 0;
  for (const std::string& strategy : kStrategies) {
    SCOPED_TRACE(strategy);
    options.recompute = strategy;
    for (const int threads : {1, 2, 3}) {
      if (!all_threads && threads != 1 + next % 3) continue;
      options.threads = threads;
      // Of auto: what takes the fewest bytes.
      options.budget.reset();
      if (strategy == "auto") {
        options.budget = 0;
        const auto smallest = MakeClosestPlan(model, options);
        ASSERT_TRUE(smallest.ok()) << smallest.status().message();
        options.budget = smallest->arena_bytes();
      }
      EXPECT_TRUE(TrainedBits(model, options, threads == 1) == want)
          << threads << " threads";
    }
    ++next;
  }
}

AdamOptions AdamW(std::optional<Storage> state = std::nullopt) {
  return {
      .beta2 = 0.98, .weight_decay = 1e-4, .decoupled = true, .state = state};
}

TEST(Translation, LearnsTheSameBitsHoweverItIsPlanned) {
  ExpectOneResult({.optimizer = Adam(AdamW())}, /*all_threads=*/true);
  ExpectOneResult({.optimizer = Adam(AdamW()), .microbatch = kTokens / 2});
}

TEST(Translation, In16BitsToo) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(DTypeName(dtype));
    ExpectOneResult({.optimizer = Adam(AdamW()),
                     .precision = Precision::All(dtype),
                     .microbatch = kTokens / 2});
  }
}

TEST(Translation, WithStateAndGradientsInBytesToo) {
  Precision precision = Precision::All(DType::kF16);
  precision.gradients = U8InBlocks();
  ExpectOneResult({.optimizer = Adam(AdamW(U8InBlocks())),
                   .precision = precision,
                   .microbatch = kTokens / 2});
}

TEST(Translation, WithSparseWeightsToo) {
  for (const WeightBlock block : {WeightBlock{1, 1}, WeightBlock{2, 2}}) {
    ExpectOneResult({.optimizer = Adam(AdamW()),
                     .precision = Precision::All(DType::kF16),
                     .sparse = {.nonzero = 0.5, .block = block},
                     .microbatch = kTokens / 2});
  }
}

TEST(Translation, WithoutGradientsToo) {
  Precision precision = Precision::All(DType::kBF16);
  precision.keeps_gradients = false;
  ExpectOneResult({.optimizer = Sgd({.momentum = 0.9f}),
                   .precision = precision,
                   .microbatch = kTokens / 2});
}

// Where activations outweigh the scratch of kernels.
constexpr int64_t kManyTokens = 1000;

TEST(Translation, ABudgetChangesNoBit) {
  const Model model = TranslationModel(kManyTokens, kDropout);
  std::vector<std::pair<int, int>> lengths;
  for (int i = 0; i < 40; ++i) lengths.emplace_back(i + 1, 40 - i);
  const std::vector<Pairs> parts = {PairsOf(lengths, 3)};
  const auto bits_of = [&](const PlanOptions& options, bool poison) {
    Translator translator(model, options, poison);
    translator.Train(parts, 1);
    return translator.Bits();
  };
  PlanOptions options = {.optimizer = Adam(AdamW())};
  const std::string want = bits_of(options, false);
  const uint64_t most = MakePlan(model, options)->arena_bytes();
  options.recompute = "auto";
  options.budget = 0;
  const auto smallest = MakeClosestPlan(model, options);
  ASSERT_TRUE(smallest.ok());
  const uint64_t least = smallest->arena_bytes();
  EXPECT_LT(least, most / 2);
  int64_t flops = 0;
  for (uint64_t k = 0; k <= 4; ++k) {
    options.budget = most - (most - least) * k / 4;
    const auto plan = MakePlan(model, options);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_LE(plan->arena_bytes(), *options.budget);
    EXPECT_GE(plan->flops_step(), flops) << "less budget, less work";
    flops = plan->flops_step();
    EXPECT_TRUE(bits_of(options, true) == want) << k;
  }
}

}  // namespace
}  // namespace thimble::testing
