// SPDX-License-Identifier: Apache-2.0
//
// Sessions against values recorded from PyTorch (tests/golden/README.md): how
// the recorded numbers are made again, and how far from them ours may be.
// One thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stored_floats.h"
#include "thimble/model.h"
#include "thimble/plan.h"
#include "thimble/session.h"

namespace thimble::testing {

using Json = nlohmann::json;

// A fixture with a recording, and a session on the network that it is of.
class GoldenTest : public ::testing::Test {
 protected:
  // How many times as wrong as PyTorch in f32 ours may be in f32.
  static constexpr double kSlack = 4;

  void ReadGolden(const std::string& name) {
    golden_ = Recording(name);
    seed_ = golden_["seed"];
  }

  static Json Recording(const std::string& name) {
    std::ifstream file(THIMBLE_SOURCE_DIR "/tests/golden/" + name);
    EXPECT_TRUE(file.good()) << name;
    return Json::parse(file);
  }

  void MakeSession(const Result<Model>& model, const SessionOptions& how,
                   PlanOptions options = {}) {
    ASSERT_TRUE(model.ok()) << model.status().message();
    const Json& sgd = golden_["sgd"];
    options.optimizer = Sgd({.momentum = sgd["momentum"],
                             .weight_decay = sgd["weight_decay"],
                             .nesterov = sgd["nesterov"]});
    options.threads = 2;
    Result<Plan> plan = MakePlan(*model, options);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    plan_ = std::make_unique<Plan>(*std::move(plan));
    auto session = Session::Create(*plan_, how);
    ASSERT_TRUE(session.ok()) << session.status().message();
    session_ = *std::move(session);
  }

  // Parameters, images and labels as recorded.
  void Load() {
    LoadParameters();
    FeedBatch();
  }

  void LoadParameters() {
    session_->Initialize(1);
    for (const ParameterState& p : plan_->parameters()) {
      const std::string& name = NameOf(p);
      const Json& record = golden_["parameters"][name];
      ASSERT_FALSE(record.is_null()) << name;
      const uint64_t tensor = record["tensor"];
      const double offset = record["offset"];
      const double scale = record["scale"];
      std::vector<float> to(static_cast<size_t>(
          plan_->graph().value(p.parameter).spec.shape.elements()));
      for (size_t i = 0; i < to.size(); ++i) {
        const uint64_t hash = Hash(tensor, i);
        const double unit =
            (static_cast<double>(hash >> 44) - 524288.0) / 524288.0;
        to[i] = static_cast<float>(offset + scale * unit);
      }
      const std::vector<float> first = record["first"];
      ASSERT_TRUE(std::equal(first.begin(), first.end(), to.begin())) << name;
      WriteStored(to, *session_, p.parameter);
    }
  }

  void FeedBatch() {
    const Json& images = golden_["images"];
    const uint64_t tensor = images["tensor"];
    const std::span<uint8_t> pixels = session_->TrainFeed<uint8_t>("images");
    for (size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<uint8_t>(Hash(tensor, i) >> 56);
    }
    const std::vector<uint8_t> first = images["first"];
    ASSERT_TRUE(std::equal(first.begin(), first.end(), pixels.begin()));
    const std::vector<int32_t> labels = golden_["labels"]["all"];
    ASSERT_EQ(labels.size(), session_->TrainFeed<int32_t>("labels").size());
    std::copy(labels.begin(), labels.end(),
              session_->TrainFeed<int32_t>("labels").begin());
  }

  const std::string& NameOf(const ParameterState& p) const {
    return plan_->graph().value(p.parameter).name;
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
    const uint64_t tensor = record["tensor"];
    double squares = 0;
    double projection = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double value = got[i];
      squares += value * value;
      projection += (Hash(100 + tensor, i) >> 63) != 0 ? -value : value;
    }
    const Json& error = record["f32_error"];
    const double floor = record.value("floor", 0.0);
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

  // Of the first step, with every parameter's gradient.
  void ExpectFirstStep() {
    ExpectFirstStep(session_->Differentiate(plan_->batch()).loss);
  }
  void ExpectFirstStep(float loss) {
    ExpectLoss(loss, 0);
    const Json& records = golden_["gradients"];
    size_t compared = 0;
    for (const ParameterState& p : plan_->parameters()) {
      SCOPED_TRACE(NameOf(p));
      ExpectTensor(records.at(NameOf(p)), session_->Floats(p.gradient));
      ++compared;
    }
    EXPECT_EQ(compared, golden_["parameters"].size());
  }

  size_t RecordedSteps() const { return golden_["losses"].size() - 1; }

  // The first `steps` on the same batch, from what Load left.
  void ExpectLossesOfSteps(size_t steps) {
    const float rate = golden_["sgd"]["lr"];
    for (size_t step = 0; step < steps; ++step) {
      FeedBatch();
      ExpectLoss(session_->TrainStep(plan_->batch(), rate).loss, step);
    }
  }

  // What a step after `steps` would begin with.
  void ExpectLossAfter(size_t steps) {
    FeedBatch();
    ExpectLoss(session_->Differentiate(plan_->batch()).loss, steps);
  }

  // Their losses, and the parameters behind them.
  void ExpectThreeSteps() {
    ExpectLossesOfSteps(RecordedSteps());
    for (const ParameterState& p : plan_->parameters()) {
      SCOPED_TRACE(NameOf(p));
      ExpectTensor(golden_["parameters_after_step_3"].at(NameOf(p)),
                   session_->Floats(p.parameter));
    }
    ExpectLossAfter(RecordedSteps());
  }

  // The recording's integer hash, from which both sides make their numbers.
  static uint64_t SplitMix64(uint64_t x) {
    x += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
  }

  uint64_t Hash(uint64_t tensor, size_t i) const {
    return SplitMix64(SplitMix64((seed_ << 32) + tensor) + i);
  }

  Json golden_;
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Session> session_;

 private:
  uint64_t seed_ = 0;
};

}  // namespace thimble::testing
