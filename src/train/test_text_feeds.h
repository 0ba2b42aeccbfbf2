// SPDX-License-Identifier: Apache-2.0
//
// For tests only: networks that read text, and what a source of batches feeds
// them. One thread.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "text/test_text.h"
#include "thimble/batches.h"
#include "thimble/network.h"
#include "thimble/plan.h"

namespace thimble::train::testing {

// A network with all five feeds, or without a source.
inline Model TextModel(int64_t batch, int64_t vocabulary = 40,
                       bool has_source = true) {
  constexpr int64_t kFeatures = 4;
  Network net("net", batch, "tokens");
  const Text target = net.TextInput("target");
  ValueId x = net.Embedding("to", target, vocabulary, kFeatures);
  if (has_source) {
    const Text source = net.OtherTextInput("source");
    const ValueId read = net.Embedding("from", source, vocabulary, kFeatures);
    x = net.Attention("attend", x, read, read, target, source, {});
  }
  auto model = net.FinishText("out", x, vocabulary);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

inline Plan PlanFor(const Model& model, int64_t microbatch) {
  auto plan = MakePlan(model, {.microbatch = microbatch});
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *std::move(plan);
}

// A sentence pair as the network gets it.
struct Fed {
  std::vector<int32_t> source, target, labels;
  friend auto operator<=>(const Fed&, const Fed&) = default;
};

inline Fed AsFed(const text::testing::TestPair& pair) {
  Fed fed{{pair.source.begin(), pair.source.end()},
          {kEndToken},
          {pair.target.begin(), pair.target.end()}};
  fed.target.insert(fed.target.end(), pair.target.begin(),
                    pair.target.end() - 1);
  return fed;
}

// Memory for the feeds of a plan, full of nines.
class FeedRoom {
 public:
  explicit FeedRoom(const Plan& plan) : ends_(plan.train_ends()) {
    for (const End& feed : ends_.feeds) {
      const ValueSpec& spec = plan.graph().value(feed.value).spec;
      auto& tokens = tokens_[feed.name];
      tokens.assign(static_cast<size_t>(spec.shape[0]), 9);
      feeds.push_back(
          {feed.name, &spec, std::as_writable_bytes(std::span(tokens))});
    }
  }

  std::vector<Fed> Sentences(const AxisCounts& counts) {
    std::vector<Fed> sentences;
    int32_t source = 0, target = 0;
    for (size_t i = 0; i < static_cast<size_t>(counts[1]); ++i) {
      const int32_t source_end = At("source_ends", i);
      const int32_t target_end = At("target_ends", i);
      sentences.push_back({Slice("source", source, source_end),
                           Slice("target", target, target_end),
                           Slice("labels", target, target_end)});
      source = source_end;
      target = target_end;
    }
    EXPECT_EQ(target, counts[0]);
    if (tokens_.contains("source")) {
      EXPECT_EQ(source, counts[2]);
    }
    return sentences;
  }

  std::vector<FeedBuffer> feeds;

 private:
  int32_t At(const std::string& feed, size_t i) {
    return tokens_.contains(feed) ? tokens_[feed].at(i) : 0;
  }
  std::vector<int32_t> Slice(const std::string& feed, int32_t from,
                             int32_t to) {
    if (!tokens_.contains(feed)) return {};
    const auto begin = tokens_[feed].begin();
    return {begin + from, begin + to};
  }

  Ends ends_;
  std::map<std::string, std::vector<int32_t>> tokens_;
};

// The parts of a step.
inline std::vector<std::vector<Fed>> PartsOf(BatchSource& source,
                                             const Plan& plan, int64_t epoch,
                                             int64_t step) {
  std::vector<std::vector<Fed>> parts;
  const auto size = source.BeginStep(epoch, step);
  EXPECT_TRUE(size.ok()) << size.status().message();
  AxisCounts done = {};
  for (int64_t part = 0; part < size->parts; ++part) {
    FeedRoom room(plan);
    const auto counts = source.Fill(part, room.feeds);
    EXPECT_TRUE(counts.ok()) << counts.status().message();
    const auto axes = plan.graph().axes();
    for (size_t i = 0; i < axes.size(); ++i) {
      EXPECT_GE((*counts)[i], 1);
      EXPECT_LE((*counts)[i], axes[i].capacity);
      done[i] += (*counts)[i];
    }
    parts.push_back(room.Sentences(*counts));
  }
  EXPECT_EQ(done, size->counts);
  return parts;
}

inline std::vector<Fed> StepOf(BatchSource& source, const Plan& plan,
                               int64_t epoch, int64_t step) {
  std::vector<Fed> all;
  for (const auto& part : PartsOf(source, plan, epoch, step)) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace thimble::train::testing
