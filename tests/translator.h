// SPDX-License-Identifier: Apache-2.0
//
// A translation model with a session, fed with pairs of sentences of any
// lengths, as many of them at a time as its plan takes. One thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "stored_floats.h"
#include "thimble/model.h"
#include "thimble/plan.h"
#include "thimble/session.h"

namespace thimble::testing {

struct SentencePair {
  std::vector<int32_t> source, target, labels;
};
using Pairs = std::vector<SentencePair>;

constexpr int64_t kSourceWords = 20, kTargetWords = 24;

// One pair for each of these lengths of source and target.
inline Pairs PairsOf(const std::vector<std::pair<int, int>>& lengths,
                     uint64_t seed) {
  const RandomStream random(seed, 0, 0);
  uint32_t drawn = 0;
  const auto words = [&](int length, int64_t vocabulary) {
    std::vector<int32_t> some;
    for (int i = 0; i < length; ++i) {
      some.push_back(static_cast<int32_t>(random.Block(drawn++)[0] %
                                          static_cast<uint32_t>(vocabulary)));
    }
    return some;
  };
  Pairs pairs;
  for (const auto& [source, target] : lengths) {
    pairs.push_back({words(source, kSourceWords), words(target, kTargetWords),
                     words(target, kTargetWords)});
  }
  return pairs;
}

// Two layers each unless it is named otherwise.
inline Model TranslationModel(
    int64_t tokens, double dropout,
    const std::string& name = "dynamicconv-16-24-2-2") {
  auto model = BuildModel(name, {.batch = tokens,
                                 .dropout = dropout,
                                 .source_vocabulary = kSourceWords,
                                 .target_vocabulary = kTargetWords});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

class Translator {
 public:
  Translator(const Model& model, const PlanOptions& options, bool poison) {
    Result<Plan> plan = MakePlan(model, options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    plan_ = std::make_unique<Plan>(*std::move(plan));
    const Status valid = ValidatePlan(*plan_);
    EXPECT_TRUE(valid.ok()) << options.recompute << ": " << valid.message();
    auto session = Session::Create(*plan_, {.poison = poison});
    EXPECT_TRUE(session.ok()) << session.status().message();
    session_ = *std::move(session);
    session_->Initialize(1);
  }

  const Plan& plan() const { return *plan_; }
  Session& session() { return *session_; }

  // Forward and backward on a step that falls into these parts: the mean loss
  // over its target's tokens.
  double Differentiate(const std::vector<Pairs>& parts) {
    AxisParts at = {};
    for (const Pairs& part : parts) {
      const AxisParts more = Counts(part);
      for (size_t a = 0; a < at.size(); ++a) at[a].total += more[a].count;
    }
    double loss = 0;
    for (const Pairs& part : parts) {
      const AxisParts counts = Counts(part);
      for (size_t a = 0; a < at.size(); ++a) at[a].count = counts[a].count;
      Feed(part, /*trains=*/true);
      const PassResult result = session_->Differentiate(at);
      loss += static_cast<double>(result.loss) *
              static_cast<double>(at[0].count) /
              static_cast<double>(at[0].total);
      for (AxisPart& axis : at) axis.first += axis.count;
    }
    return loss;
  }

  PassResult Evaluate(const Pairs& pairs) {
    Feed(pairs, /*trains=*/false);
    AxisParts parts = Counts(pairs);
    for (AxisPart& axis : parts) axis.total = axis.count;
    return session_->Evaluate(parts);
  }

  // After `steps` steps of these parts.
  void Train(const std::vector<Pairs>& parts, int steps) {
    constexpr float kRate = 0.01f;
    for (int step = 0; step < steps; ++step) {
      session_->BeginStep(kRate, kRate);
      losses_.push_back(Differentiate(parts));
      session_->Update(kRate);
    }
  }

  // Bytes of all weights, and what the steps said.
  std::string Bits() {
    std::string bits(reinterpret_cast<const char*>(losses_.data()),
                     losses_.size() * sizeof(double));
    for (const ParameterState& p : plan_->parameters()) {
      const auto bytes = session_->Bytes(p.parameter);
      bits.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return bits;
  }

  // Of each dense parameter, by name.
  std::map<std::string, std::vector<float>> Gradients() {
    std::map<std::string, std::vector<float>> gradients;
    for (const ParameterState& p : plan_->parameters()) {
      gradients[plan_->graph().value(p.parameter).name] =
          ReadStored(*session_, p.gradient);
    }
    return gradients;
  }

 private:
  AxisParts Counts(const Pairs& pairs) const {
    AxisParts parts = {};
    const auto axes = plan_->graph().axes();
    for (size_t a = 0; a < axes.size(); ++a) {
      for (const SentencePair& pair : pairs) {
        parts[a].count += axes[a].name == "sentences" ? 1
                          : axes[a].name == "tokens"
                              ? static_cast<int64_t>(pair.target.size())
                              : static_cast<int64_t>(pair.source.size());
      }
    }
    return parts;
  }

  void Feed(const Pairs& pairs, bool trains) {
    const auto put = [&](const char* name, const std::vector<int32_t>& values) {
      const auto feed = trains ? session_->TrainFeed<int32_t>(name)
                               : session_->EvaluateFeed<int32_t>(name);
      ASSERT_LE(values.size(), feed.size()) << name;
      std::ranges::copy(values, feed.begin());
    };
    std::vector<int32_t> source, source_ends, target, target_ends, labels;
    for (const SentencePair& pair : pairs) {
      source.insert(source.end(), pair.source.begin(), pair.source.end());
      target.insert(target.end(), pair.target.begin(), pair.target.end());
      labels.insert(labels.end(), pair.labels.begin(), pair.labels.end());
      source_ends.push_back(static_cast<int32_t>(source.size()));
      target_ends.push_back(static_cast<int32_t>(target.size()));
    }
    put("source", source);
    put("source_ends", source_ends);
    put("target", target);
    put("target_ends", target_ends);
    put("labels", labels);
  }

  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Session> session_;
  std::vector<double> losses_;
};

}  // namespace thimble::testing
