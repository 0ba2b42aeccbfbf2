// SPDX-License-Identifier: Apache-2.0
//
// Translation models against values recorded from PyTorch in f64
// (tests/golden/dynamic_conv*.json): ours may be kSlack times as wrong in f32
// as PyTorch was in f32.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "golden_check.h"
#include "kernels/testing.h"
#include "thimble/model.h"

namespace thimble::testing {
namespace {

class DynamicConvGoldenTest : public GoldenTest {
 protected:
  // With capacities above what the recording has: rows are left over.
  void Read(const std::string& name, const PlanOptions& options = {}) {
    ReadGolden(name);
    const Json& texts = golden_["texts"];
    for (const Json& pair : texts["lengths"]) {
      tokens_[0] += pair[0].get<int64_t>();
      tokens_[1] += pair[1].get<int64_t>();
    }
    ModelOptions model;
    model.batch = std::max(tokens_[0], tokens_[1]) + 3;
    model.dropout = 0;
    model.source_vocabulary = texts["source"]["words"];
    model.target_vocabulary = texts["labels"]["words"];
    MakeSession(BuildModel(golden_["model"], model), {.poison = true}, options);
  }

  void ExpectRecorded() {
    LoadParameters();
    FeedTexts();
    AxisParts parts = {};
    const auto axes = plan_->graph().axes();
    for (size_t a = 0; a < axes.size(); ++a) {
      const int64_t count = axes[a].name == "sentences" ? sentences()
                            : axes[a].name == "tokens"  ? tokens_[1]
                                                        : tokens_[0];
      parts[a] = {.first = 0, .count = count, .total = count};
    }
    ExpectFirstStep(session_->Differentiate(parts).loss);
  }

 private:
  int64_t sentences() const {
    return static_cast<int64_t>(golden_["texts"]["lengths"].size());
  }

  std::vector<int32_t> Words(const char* side, int64_t count) const {
    const Json& words = golden_["texts"][side];
    const uint64_t tensor = words["tensor"], vocabulary = words["words"];
    std::vector<int32_t> ids;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      ids.push_back(static_cast<int32_t>((Hash(tensor, i) >> 32) % vocabulary));
    }
    const std::vector<int32_t> first = words["first"];
    EXPECT_TRUE(std::equal(first.begin(), first.end(), ids.begin()));
    return ids;
  }

  void Put(const char* feed, const std::vector<int32_t>& values) {
    std::ranges::copy(values, session_->TrainFeed<int32_t>(feed).begin());
  }

  void FeedTexts() {
    const Json& texts = golden_["texts"];
    const std::vector<int32_t> labels = Words("labels", tokens_[1]);
    std::vector<int32_t> target(labels.size()), ends[2];
    int32_t rows[2] = {0, 0};
    for (const Json& pair : texts["lengths"]) {
      const auto begin = static_cast<size_t>(rows[1]);
      for (size_t side : {0u, 1u}) {
        rows[side] += pair[side].get<int32_t>();
        ends[side].push_back(rows[side]);
      }
      target[begin] = texts["eos"];
      const auto from = labels.begin() + static_cast<ptrdiff_t>(begin);
      std::copy(from, labels.begin() + rows[1] - 1,
                target.begin() + static_cast<ptrdiff_t>(begin) + 1);
    }
    Put("source", Words("source", tokens_[0]));
    Put("source_ends", ends[0]);
    Put("target", target);
    Put("target_ends", ends[1]);
    Put("labels", labels);
  }

  int64_t tokens_[2] = {0, 0};  // of source and target
};

TEST_F(DynamicConvGoldenTest, TwoLayersHaveTheGradientsOfPyTorch) {
  Read("dynamic_conv.json");
  kernels::testing::ForEachTarget([this] { ExpectRecorded(); });
}

TEST_F(DynamicConvGoldenTest, SoTheyHaveRecomputed) {
  Read("dynamic_conv.json", {.recompute = "residual-2*"});
  ExpectRecorded();
}

TEST_F(DynamicConvGoldenTest, TheWholeNetworkHasTheGradientsOfPyTorch) {
  Read("dynamic_conv_iwslt.json");
  ExpectRecorded();
}

}  // namespace
}  // namespace thimble::testing
