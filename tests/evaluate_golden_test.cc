// SPDX-License-Identifier: Apache-2.0
//
// Running statistics and evaluations of a small residual network after three
// steps against values recorded from PyTorch in f64 (tests/golden/
// evaluate.json), fused and not, and with batch statistics of parts of the
// batch. Ours may be kSlack times as wrong in f32 as PyTorch was in f32, or as
// wrong as one rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "golden_check.h"
#include "kernels/testing.h"
#include "thimble/network.h"

namespace thimble::testing {
namespace {

// What a setting is called, and the images that share batch statistics in it.
struct Setting {
  std::string name;
  int64_t microbatch = 0;
  int64_t ghost_batch = 0;
  int64_t group = 8;
};

const std::vector<Setting> kSettings = {
    {.name = "whole batches"},
    {.name = "microbatches of 4", .microbatch = 4, .group = 4},
    {.name = "ghost batches of 4", .ghost_batch = 4, .group = 4},
    {.name = "ghost batches of 2 in microbatches of 4",
     .microbatch = 4,
     .ghost_batch = 2,
     .group = 2},
};

class EvaluateGoldenTest : public GoldenTest {
 protected:
  void SetUp() override { ReadGolden("evaluate.json"); }

  Result<Model> Build() {
    const Json& momentum = golden_["bn"]["momentum"];
    const float eps = golden_["bn"]["eps"];
    const float scale = golden_["input"]["scale"];
    const float shift = golden_["input"]["shift"];
    Network net("golden", golden_["batch"]);
    const auto activated = [&](const std::string& name, ValueId x) {
      return net.Relu(net.BatchNorm(name, x, eps, momentum.at(name)));
    };
    ValueId x = net.Images({.channels = 3,
                            .height = 12,
                            .width = 12,
                            .mean = {-shift / scale},
                            .stddev = {1 / scale}});
    x = activated("bn0", net.Conv2d("stem", x, {.channels = 6}));
    x = net.MaxPool(x);
    ValueId y = activated("block1.bn1", x);
    y = net.Conv2d("block1.conv1", y, {.channels = 6});
    y = activated("block1.bn2", y);
    x = net.Add(x, net.Conv2d("block1.conv2", y, {.channels = 6}));
    const ValueId shortcut = net.Shortcut(x, 8, 2);
    y = activated("block2.bn1", x);
    y = net.Conv2d("block2.conv1", y, {.channels = 8, .stride = 2});
    y = activated("block2.bn2", y);
    x = net.Add(shortcut, net.Conv2d("block2.conv2", y, {.channels = 8}));
    x = net.GlobalAveragePool(activated("bn", x));
    return net.Finish(net.Linear("fc", x, golden_["classes"]));
  }

  // Rows from `first` on of a recorded batch, as many as there is room for.
  void Feed(const Json& batch, size_t first, std::span<uint8_t> images,
            std::span<int32_t> labels) {
    const Json& shape = batch["images"]["shape"];
    const size_t row = shape[1].get<size_t>() * shape[2].get<size_t>() *
                       shape[3].get<size_t>();
    const uint64_t tensor = batch["images"]["tensor"];
    ASSERT_EQ(images.size(), row * labels.size());
    for (size_t i = 0; i < images.size(); ++i) {
      images[i] = static_cast<uint8_t>(Hash(tensor, first * row + i) >> 56);
    }
    const std::vector<uint8_t> begin = batch["images"]["first"];
    if (first == 0) {
      ASSERT_TRUE(std::equal(begin.begin(), begin.end(), images.begin()));
    }
    const std::vector<int32_t> all = batch["labels"]["all"];
    for (size_t i = 0; i < labels.size() && first + i < all.size(); ++i) {
      labels[i] = all[first + i];
    }
  }

  // The recorded steps, microbatch by microbatch.
  void TrainSteps(const Json& group) {
    const int64_t images = plan_->batch();
    for (size_t step = 0; step < golden_["steps"].size(); ++step) {
      double loss = 0;
      for (int64_t first = 0; first < images; first += plan_->microbatch()) {
        Feed(golden_["steps"][step], static_cast<size_t>(first),
             session_->TrainFeed<uint8_t>("images"),
             session_->TrainFeed<int32_t>("labels"));
        const int64_t count = plan_->microbatch();
        loss += static_cast<double>(
                    session_
                        ->Differentiate(
                            {.first = first, .count = count, .total = images})
                        .loss) *
                static_cast<double>(count);
      }
      session_->Update(golden_["sgd"]["lr"]);
      const Json& record = group["losses"][step];
      EXPECT_NEAR(loss / static_cast<double>(images),
                  record["value"].get<double>(),
                  Bound(record["f32_error"], record["floor"]))
          << "step " << step;
    }
  }

  void ExpectStatistics(const Json& records) {
    ASSERT_EQ(plan_->statistics().size(), records.size());
    for (ValueId v : plan_->statistics()) {
      const std::string& name = plan_->graph().value(v).name;
      const Json& record = records.at(name);
      const std::vector<double> want = record["values"];
      const std::span<const float> got = session_->Floats(v);
      ASSERT_EQ(got.size(), want.size()) << name;
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(got[i], want[i],
                    Bound(record["f32_error"], record["floor"]))
            << name << " of channel " << i;
      }
    }
  }

  // As many rows at a time as the plan is for; the last time fewer.
  void ExpectEvaluation(const Plan& plan, Session& session,
                        const Json& record) {
    const Json& batch = golden_["evaluated"];
    const int64_t rows = batch["labels"]["all"].size();
    double loss = 0;
    double correct = 0;
    std::vector<float> logits;
    for (int64_t first = 0; first < rows; first += plan.microbatch()) {
      Feed(batch, static_cast<size_t>(first),
           session.EvaluateFeed<uint8_t>("images"),
           session.EvaluateFeed<int32_t>("labels"));
      const int64_t count = std::min(plan.microbatch(), rows - first);
      const PassResult result = session.Evaluate(count);
      loss += static_cast<double>(result.loss) * static_cast<double>(count);
      correct += result.metrics[0];
      const auto made = session.Floats(plan.evaluate_ends().outputs[0].value);
      const size_t classes = golden_["classes"];
      logits.insert(logits.end(), made.begin(),
                    made.begin() + static_cast<ptrdiff_t>(
                                       static_cast<size_t>(count) * classes));
    }
    const Json& want = record["loss"];
    EXPECT_NEAR(loss / static_cast<double>(rows), want["value"].get<double>(),
                Bound(want["f32_error"], want["floor"]));
    EXPECT_EQ(correct, record["correct"].get<double>());
    ExpectTensor(record["logits"], logits);
  }

  // Calls body(record of the setting) after the steps of each setting, fused
  // and not, on each target.
  template <typename Body>
  void AfterTraining(const Body& body) {
    for (const Setting& setting : kSettings) {
      for (const bool fuse : {true, false}) {
        SCOPED_TRACE(setting.name + (fuse ? ", fused" : ", not fused"));
        MakeSession(Build(), {.poison = true},
                    {.microbatch = setting.microbatch,
                     .ghost_batch = setting.ghost_batch,
                     .fuse = fuse});
        const Json& group = golden_["groups"][std::to_string(setting.group)];
        kernels::testing::ForEachTarget([&] {
          LoadParameters();
          TrainSteps(group);
          body(group);
        });
      }
    }
  }
};

TEST_F(EvaluateGoldenTest, RunningStatisticsAndEvaluationsAreThoseOfPyTorch) {
  AfterTraining([this](const Json& group) {
    ExpectStatistics(group["statistics"]);
    ExpectEvaluation(*plan_, *session_, group["evaluation"]);
    // Which leaves the state as it was.
    ExpectStatistics(group["statistics"]);
  });
}

TEST_F(EvaluateGoldenTest, SoAreEvaluationsOfAPlanForNothingElse) {
  AfterTraining([this](const Json& group) {
    auto model = Build();
    ASSERT_TRUE(model.ok());
    const auto plan =
        MakePlan(*model, {.training = false, .fuse = plan_->options().fuse});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    auto session = Session::Create(*plan, {.poison = true});
    ASSERT_TRUE(session.ok()) << session.status().message();
    std::map<std::string, std::span<const float>> state;
    for (const ParameterState& p : plan_->parameters()) {
      state[NameOf(p)] = session_->Floats(p.parameter);
    }
    for (ValueId v : plan_->statistics()) {
      state[plan_->graph().value(v).name] = session_->Floats(v);
    }
    const auto copy = [&](ValueId v) {
      std::ranges::copy(state.at(plan->graph().value(v).name),
                        (*session)->Floats(v).begin());
    };
    for (const ParameterState& p : plan->parameters()) copy(p.parameter);
    for (ValueId v : plan->statistics()) copy(v);
    ExpectEvaluation(*plan, **session, group["evaluation"]);
  });
}

}  // namespace
}  // namespace thimble::testing
