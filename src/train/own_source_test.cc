// SPDX-License-Identifier: Apache-2.0
//
// Train and a source of batches that is none of ours: steps of different sizes,
// no test split, and what it may not do.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/test_folder.h"
#include "thimble/network.h"
#include "thimble/trainer.h"

namespace thimble {
namespace {

// Step s of an epoch of three has s + 1 parts, of which part p has p + 1 rows.
class Uneven : public BatchSource {
 public:
  const std::string& name() const override { return name_; }
  Status Begin(const Plan&, uint64_t seed) override {
    seed_ = seed;
    return Status::Ok();
  }
  int64_t StepsPerEpoch() const override { return 3; }
  Result<StepSize> BeginStep(int64_t epoch, int64_t step) override {
    calls.push_back({epoch, step});
    return StepSize{.parts = step + 1, .counts = {(step + 1) * (step + 2) / 2}};
  }
  Result<AxisCounts> Fill(int64_t part,
                          std::span<const FeedBuffer> feeds) override {
    Put(feeds, calls.back().epoch * 100 + calls.back().step * 10 + part);
    return AxisCounts{part + 1};
  }
  int64_t TestParts() const override { return 0; }
  Result<AxisCounts> FillTest(int64_t part,
                              std::span<const FeedBuffer> feeds) override {
    Put(feeds, 1000 + part);
    return AxisCounts{part + 1};
  }
  Result<std::map<std::string, std::string>> Settings() const override {
    return std::map<std::string, std::string>{{"grammar", grammar}};
  }
  std::vector<SourceFact> LogFacts() const override {
    return {{"corpus", name_}, {"train_sentences", 10}};
  }
  std::map<std::string, std::string> WeightsFacts() const override {
    return {{"vocabulary", "abc"}};
  }

  struct Call {
    int64_t epoch, step;
    friend bool operator==(const Call&, const Call&) = default;
  };
  std::vector<Call> calls;
  std::string grammar = "regular";

 private:
  void Put(std::span<const FeedBuffer> feeds, int64_t number) const {
    ASSERT_EQ(feeds.size(), 2u);
    EXPECT_EQ(feeds[0].name, "images");
    EXPECT_EQ(feeds[1].name, "labels");
    const auto images = feeds[0].As<uint8_t>();
    const auto labels = feeds[1].As<int32_t>();
    for (size_t i = 0; i < images.size(); ++i) {
      images[i] = static_cast<uint8_t>(
          i * 7 + static_cast<size_t>(number) * 13 + seed_);
    }
    for (size_t i = 0; i < labels.size(); ++i) {
      labels[i] = static_cast<int32_t>((i + static_cast<size_t>(number)) % 3);
    }
  }

  std::string name_ = "uneven";
  uint64_t seed_ = 0;
};

class OwnSource : public ::testing::Test {
 protected:
  OwnSource() {
    Network net("net", 6);
    const ValueId x = net.Images({.channels = 1, .height = 4, .width = 4});
    auto model = net.Finish(net.Linear("fc", net.Flatten(x), 3));
    EXPECT_TRUE(model.ok());
    auto plan = MakePlan(*model, {.microbatch = 3});
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    plan_ = std::make_unique<Plan>(*std::move(plan));
    options_.steps = 5;
    options_.learning_rate = 0.01;
  }

  std::string WeightsOf(BatchSource& source) {
    const auto summary = Train(*plan_, source, options_, nullptr);
    EXPECT_TRUE(summary.ok()) << summary.status().message();
    return summary.ok() ? summary->weights_sha256 : "";
  }

  std::unique_ptr<Plan> plan_;
  TrainOptions options_;
};

TEST_F(OwnSource, IsAskedForTheStepsOfEachEpochInOrder) {
  Uneven source;
  WeightsOf(source);
  using Call = Uneven::Call;
  EXPECT_EQ(source.calls,
            (std::vector<Call>{{0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}}));
}

TEST_F(OwnSource, DecidesHowLongAnEpochIs) {
  options_.steps = 0;
  options_.epochs = 2;
  Uneven source;
  const auto summary = Train(*plan_, source, options_, nullptr);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  EXPECT_EQ(summary->steps, 6);
  EXPECT_TRUE(std::isnan(summary->metric("accuracy").last))
      << "there is no test split";
}

TEST_F(OwnSource, GoesOnAfterAnyStepToTheSameBits) {
  Uneven whole;
  const std::string weights = WeightsOf(whole);
  for (int64_t stop = 1; stop < 5; ++stop) {
    SCOPED_TRACE(stop);
    const TestFolder folder;
    options_.out_dir = folder.File("run");
    options_.resume = true;
    class Stopper final : public TrainObserver {
     public:
      explicit Stopper(int64_t step) : step_(step) {}
      void OnStep(const StepEvent& event) override {
        if (event.step == step_) stop = true;
      }
      void OnEpoch(const EpochEvent&) override {}
      std::atomic<bool> stop{false};

     private:
      int64_t step_;
    } stopper(stop);
    options_.stop = &stopper.stop;
    Uneven first;
    ASSERT_TRUE(Train(*plan_, first, options_, &stopper).ok());
    options_.stop = nullptr;
    Uneven other;
    other.grammar = "free";
    const auto refused = Train(*plan_, other, options_, nullptr);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.status().message().find("grammar = regular"),
              std::string::npos)
        << refused.status().message();
    Uneven rest;
    EXPECT_EQ(WeightsOf(rest), weights);
    EXPECT_EQ(static_cast<int64_t>(rest.calls.size()), 5 - stop);
    options_.out_dir.clear();
    options_.resume = false;
  }
}

TEST_F(OwnSource, IsNamedInTheLogAndInTheWeights) {
  const TestFolder folder;
  options_.out_dir = folder.File("run");
  options_.log_path = folder.File("log");
  Uneven source;
  WeightsOf(source);
  EXPECT_NE(ReadTestFile(folder.File("log"))
                .find("{\"event\":\"start\",\"corpus\":\"uneven\","
                      "\"train_sentences\":10,\"seed\":1,"),
            std::string::npos);
  EXPECT_NE(ReadTestFile(folder.File("run/weights.safetensors"))
                .find("\"vocabulary\":\"abc\""),
            std::string::npos);
  const auto plan = PlanEvaluation(folder.File("run"), {});
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("does not say on which images"),
            std::string::npos)
      << plan.status().message();
}

// One that breaks its word in one place.
class Broken final : public Uneven {
 public:
  int64_t steps = 3;
  int64_t named = 0;   // what a step is said to have; 0: as it has
  int64_t filled = 0;  // what a part is said to have; 0: as it has
  bool fails = false;

  int64_t StepsPerEpoch() const override { return steps; }
  Result<StepSize> BeginStep(int64_t epoch, int64_t step) override {
    auto size = Uneven::BeginStep(epoch, step);
    if (named != 0) size->counts = {named};
    return size;
  }
  Result<AxisCounts> Fill(int64_t part,
                          std::span<const FeedBuffer> feeds) override {
    if (fails) return Status::Failed("no more paper");
    const auto counts = Uneven::Fill(part, feeds);
    return filled != 0 ? AxisCounts{filled} : *counts;
  }
};

TEST_F(OwnSource, IsRefusedWhereItBreaksItsWord) {
  const auto refusal = [this](const std::function<void(Broken&)>& how) {
    Broken source;
    how(source);
    const auto summary = Train(*plan_, source, options_, nullptr);
    EXPECT_FALSE(summary.ok());
    return summary.ok() ? "" : summary.status().message();
  };
  EXPECT_EQ(refusal([](Broken& s) { s.fails = true; }), "no more paper");
  EXPECT_EQ(refusal([](Broken& s) { s.steps = 0; }),
            "'uneven' has nothing to train on");
  for (const int64_t filled : {-1, 4}) {
    EXPECT_EQ(
        refusal([&](Broken& s) { s.filled = filled; }),
        "the source 'uneven' filled " + std::to_string(filled) +
            " images of a microbatch that has room for 3; it must fill at "
            "least one, and no more");
  }
  EXPECT_EQ(refusal([](Broken& s) { s.named = 2; }),
            "the source 'uneven' filled 1 image of a step for which it had "
            "named 2");
  EXPECT_EQ(refusal([](Broken& s) { s.named = 1; }),
            "the source 'uneven' filled 3 images of a step for which it had "
            "named 1");
}

TEST_F(OwnSource, NeedsAPlanOfSeveralPartsToMakeSome) {
  Network net("net", 6);
  const ValueId x = net.Images({.channels = 1, .height = 4, .width = 4});
  const auto model = net.Finish(net.Linear("fc", net.Flatten(x), 3));
  ASSERT_TRUE(model.ok());
  const auto whole = MakePlan(*model, {});
  ASSERT_TRUE(whole.ok());
  Uneven source;
  const auto summary = Train(*whole, source, options_, nullptr);
  ASSERT_FALSE(summary.ok());
  EXPECT_NE(summary.status().message().find("PlanOptions::microbatch"),
            std::string::npos)
      << summary.status().message();
}

}  // namespace
}  // namespace thimble
