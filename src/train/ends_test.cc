// SPDX-License-Identifier: Apache-2.0
//
// Ends of a model that has nothing to do with images: two axes, two metrics.
#include "train/ends.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace thimble::train {
namespace {

// A plan of which only graph and ends are made.
Plan TextPlan() {
  PlanParts parts;
  const AxisId tokens = parts.graph.AddAxis("tokens", 100);
  const AxisId sentences = parts.graph.AddAxis("sentences", 10);
  parts.graph.AddValue("words", {{100}, DType::kI32, tokens}, Role::kInput);
  parts.graph.AddValue("lengths", {{10}, DType::kI32, sentences}, Role::kInput);
  const ValueId right =
      parts.graph.AddValue("right", {{1}, DType::kI32}, Role::kStatistic);
  const ValueId bits =
      parts.graph.AddValue("bits", {{1}, DType::kF32}, Role::kStatistic);
  parts.evaluate.metrics = {{"word accuracy", right}, {"bits", bits}};
  return Plan(std::move(parts));
}

// The source is only asked for its name.
class Named final : public BatchSource {
 public:
  const std::string& name() const override { return name_; }
  Status Begin(const Plan&, uint64_t) override { return Status::Ok(); }
  int64_t StepsPerEpoch() const override { return 1; }
  Result<StepSize> BeginStep(int64_t, int64_t) override { return StepSize{}; }
  Result<AxisCounts> Fill(int64_t, std::span<const FeedBuffer>) override {
    return AxisCounts{};
  }
  int64_t TestParts() const override { return 0; }
  Result<AxisCounts> FillTest(int64_t, std::span<const FeedBuffer>) override {
    return AxisCounts{};
  }
  Result<std::map<std::string, std::string>> Settings() const override {
    return std::map<std::string, std::string>();
  }
  std::vector<SourceFact> LogFacts() const override { return {}; }
  std::map<std::string, std::string> WeightsFacts() const override {
    return {};
  }

 private:
  std::string name_ = "tales";
};

TEST(Ends, SpeedIsToldAlongTheFirstAxis) {
  EXPECT_EQ(AxisNameOf(TextPlan()), "tokens");
}

TEST(Ends, AMetricThatCountsIsAShare) {
  const std::vector<MetricName> metrics = MetricsOf(TextPlan());
  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_EQ(metrics[0].name, "word accuracy");
  EXPECT_TRUE(metrics[0].is_share);
  EXPECT_EQ(metrics[1].name, "bits");
  EXPECT_FALSE(metrics[1].is_share);
}

TEST(Ends, MetricsOfPassesAddUp) {
  std::vector<double> sums = {1, 0.5};
  AddMetrics({.metrics = {3, 0.25, 99}}, sums);
  EXPECT_EQ(sums, std::vector<double>({4, 0.75}));
}

TEST(Ends, APassUsesEachAxisBehindWhatWasDone) {
  const auto parts = PartsOf(Named(), TextPlan(), {70, 4}, {60, 5}, {130, 12});
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  EXPECT_EQ((*parts)[0].first, 60);
  EXPECT_EQ((*parts)[0].count, 70);
  EXPECT_EQ((*parts)[0].total, 130);
  EXPECT_EQ((*parts)[1].first, 5);
  EXPECT_EQ((*parts)[1].count, 4);
  EXPECT_EQ((*parts)[1].total, 12);
  EXPECT_EQ((*parts)[2].total, 0) << "there is no third axis";
}

TEST(Ends, EveryAxisIsHeldToItsRoomAndToTheStep) {
  const auto refusal = [](const AxisCounts& counts, const AxisCounts& done,
                          const AxisCounts& total) {
    const auto parts = PartsOf(Named(), TextPlan(), counts, done, total);
    EXPECT_FALSE(parts.ok());
    return parts.ok() ? "" : parts.status().message();
  };
  EXPECT_EQ(refusal({100, 11}, {}, {100, 11}),
            "the source 'tales' filled 11 sentences of a microbatch that has "
            "room for 10; it must fill at least one, and no more");
  EXPECT_NE(refusal({0, 1}, {}, {1, 1}).find("filled 0 tokens"),
            std::string::npos);
  EXPECT_EQ(refusal({50, 6}, {50, 5}, {100, 10}),
            "the source 'tales' filled 11 sentences of a step for which it had "
            "named 10");
}

}  // namespace
}  // namespace thimble::train
