// SPDX-License-Identifier: Apache-2.0
//
// A small conv-BN network against values recorded from PyTorch in f64
// (tests/golden/conv_bn.json): ours may be kSlack times as wrong in f32 as
// PyTorch was in f32, or as wrong as one rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "kernels/testing.h"
#include "thimble/network.h"
#include "thimble/plan.h"
#include "thimble/session.h"

namespace thimble::testing {
namespace {

using Json = nlohmann::json;

constexpr double kSlack = 4;

// The recording's integer hash, from which both sides make their numbers.
uint64_t SplitMix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

class GoldenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(THIMBLE_SOURCE_DIR "/tests/golden/conv_bn.json");
    ASSERT_TRUE(file.good());
    golden_ = Json::parse(file);
    seed_ = golden_["seed"];
    Build();
  }

  uint64_t Hash(uint64_t tensor, size_t i) const {
    return SplitMix64(SplitMix64((seed_ << 32) + tensor) + i);
  }

  void Build() {
    const Json& bn = golden_["bn"];
    const float eps = bn["eps"];
    const float momentum = bn["momentum"];
    const float scale = golden_["input"]["scale"];
    const float shift = golden_["input"]["shift"];
    Network net("golden", golden_["batch"]);
    ValueId x = net.Images({.channels = 1,
                            .height = 12,
                            .width = 12,
                            .mean = {-shift / scale},
                            .stddev = {1 / scale}});
    x = net.Conv2d("conv1", x, {.channels = 6});
    x = net.MaxPool(net.Relu(net.BatchNorm("bn1", x, eps, momentum)));
    ValueId y = net.Conv2d("conv2", x, {.channels = 8, .stride = 2});
    y = net.BatchNorm("bn2", y, eps, momentum);
    y = net.Relu(net.Add(y, net.Shortcut(x, 8, 2)));
    const Result<Model> model =
        net.Finish(net.Linear("linear", net.GlobalAveragePool(y), 10));
    ASSERT_TRUE(model.ok()) << model.status().message();
    const Json& sgd = golden_["sgd"];
    PlanOptions options;
    options.optimizer = {.momentum = sgd["momentum"],
                         .weight_decay = sgd["weight_decay"],
                         .nesterov = sgd["nesterov"]};
    options.threads = 2;
    Result<Plan> plan = MakePlan(*model, options);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    plan_ = std::make_unique<Plan>(*std::move(plan));
    auto session = Session::Create(*plan_, {.poison = true});
    ASSERT_TRUE(session.ok()) << session.status().message();
    session_ = *std::move(session);
  }

  // Parameters, images and labels as recorded.
  void Load() {
    session_->Initialize(1);
    for (const ParameterState& p : plan_->parameters()) {
      const std::string& name = plan_->graph().value(p.parameter).name;
      const Json& record = golden_["parameters"][name];
      ASSERT_FALSE(record.is_null()) << name;
      const std::span<float> to = session_->Floats(p.parameter);
      for (size_t i = 0; i < to.size(); ++i) {
        const uint64_t hash = Hash(record["tensor"], i);
        const double unit =
            (static_cast<double>(hash >> 44) - 524288.0) / 524288.0;
        to[i] = static_cast<float>(record["offset"].get<double>() +
                                   record["scale"].get<double>() * unit);
      }
      const std::vector<float> first = record["first"];
      ASSERT_TRUE(std::equal(first.begin(), first.end(), to.begin())) << name;
    }
    FeedBatch();
  }

  void FeedBatch() {
    const Json& images = golden_["images"];
    const std::span<uint8_t> pixels = session_->train_images();
    for (size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<uint8_t>(Hash(images["tensor"], i) >> 56);
    }
    const std::vector<uint8_t> first = images["first"];
    ASSERT_TRUE(std::equal(first.begin(), first.end(), pixels.begin()));
    const std::vector<int32_t> labels = golden_["labels"]["all"];
    ASSERT_EQ(labels.size(), session_->train_labels().size());
    std::copy(labels.begin(), labels.end(), session_->train_labels().begin());
  }

  static double Bound(double f32_error, double floor) {
    return kSlack * std::max(f32_error, floor);
  }

  void ExpectLoss(float loss, size_t step) const {
    const Json& record = golden_["losses"][step];
    EXPECT_NEAR(loss, record["value"].get<double>(),
                Bound(record["f32_error"], record["floor"]))
        << "step " << step;
  }

  // A tensor by its norm, its projection on random signs, and some entries.
  void ExpectTensor(const Json& record, std::span<const float> got) const {
    double squares = 0;
    double projection = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double value = got[i];
      squares += value * value;
      const uint64_t tensor = record["tensor"];
      projection += (Hash(100 + tensor, i) >> 63) != 0 ? -value : value;
    }
    const Json& error = record["f32_error"];
    const double floor = record["floor"];
    EXPECT_NEAR(std::sqrt(squares), record["norm"].get<double>(),
                Bound(error["norm"], floor));
    EXPECT_NEAR(projection, record["projection"].get<double>(),
                Bound(error["projection"], floor));
    for (const Json& entry : record["entries"]) {
      EXPECT_NEAR(got[entry[0].get<size_t>()], entry[1].get<double>(),
                  Bound(error["entries"], floor))
          << "entry " << entry[0];
    }
  }

  Json golden_;
  uint64_t seed_ = 0;
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Session> session_;
};

TEST_F(GoldenTest, GradientsAreThoseOfPyTorch) {
  kernels::testing::ForEachTarget([this] {
    Load();
    ExpectLoss(session_->Differentiate(plan_->batch()).loss, 0);
    size_t compared = 0;
    for (const ParameterState& p : plan_->parameters()) {
      const std::string& name = plan_->graph().value(p.parameter).name;
      SCOPED_TRACE(name);
      ExpectTensor(golden_["gradients"].at(name), session_->Floats(p.gradient));
      ++compared;
    }
    EXPECT_EQ(compared, golden_["parameters"].size());
  });
}

TEST_F(GoldenTest, LossesAndParametersOfThreeStepsAreThoseOfPyTorch) {
  kernels::testing::ForEachTarget([this] {
    Load();
    const float rate = golden_["sgd"]["lr"];
    const size_t steps = golden_["losses"].size() - 1;
    for (size_t step = 0; step < steps; ++step) {
      FeedBatch();
      ExpectLoss(session_->TrainStep(plan_->batch(), rate).loss, step);
    }
    for (const ParameterState& p : plan_->parameters()) {
      const std::string& name = plan_->graph().value(p.parameter).name;
      SCOPED_TRACE(name);
      ExpectTensor(golden_["parameters_after_step_3"].at(name),
                   session_->Floats(p.parameter));
    }
    FeedBatch();
    ExpectLoss(session_->Differentiate(plan_->batch()).loss, steps);
  });
}

TEST_F(GoldenTest, RunningStatisticsAreThoseOfPyTorch) {
  kernels::testing::ForEachTarget([this] {
    Load();
    session_->TrainStep(plan_->batch(), golden_["sgd"]["lr"]);
    const Json& records = golden_["statistics_after_step_1"];
    ASSERT_EQ(plan_->statistics().size(), records.size());
    for (ValueId v : plan_->statistics()) {
      const std::string& name = plan_->graph().value(v).name;
      // "bn1.running_mean" is recorded as "bn1.mean".
      const std::string recorded =
          name.substr(0, 4) + name.substr(name.find('_') + 1);
      SCOPED_TRACE(name);
      const Json& record = records.at(recorded);
      const std::vector<double> want = record["values"];
      const std::span<const float> got = session_->Floats(v);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(got[i], want[i],
                    Bound(record["f32_error"], record["floor"]));
      }
    }
  });
}

}  // namespace
}  // namespace thimble::testing
