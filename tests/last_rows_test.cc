// SPDX-License-Identifier: Apache-2.0
//
// Networks without a loss: what they give, and how an evaluation goes on behind
// one of its values.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "thimble/network.h"
#include "thimble/plan.h"
#include "thimble/session.h"

namespace thimble::testing {
namespace {

constexpr int64_t kTokens = 7, kFeatures = 4, kVocabulary = 5;

// Rows of the source's tokens ("read") added to the target's; of the sums the
// last row of each sentence ("last").
Model Reader() {
  Network net("reader", kTokens, "tokens");
  const Text target = net.TextInput("target");
  const Text source = net.TextInput("source");
  const ValueId read =
      net.Embedding("source", source, kVocabulary, kFeatures, false);
  const ValueId x =
      net.Embedding("target", target, kVocabulary, kFeatures, false);
  const ValueId last = net.LastRows(net.Add(read, x), target);
  auto model = net.FinishOutputs({{"read", read}, {"last", last}});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

class Running {
 public:
  explicit Running(DType type, bool poison = true) {
    auto plan = MakePlan(
        Reader(),
        {.precision = Precision::All(type), .threads = 2, .training = false});
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    plan_ = std::make_unique<Plan>(*std::move(plan));
    session_ = *Session::Create(*plan_, {.poison = poison});
    session_->Initialize(1);
  }

  Session& operator*() { return *session_; }
  AxisParts Feed(const std::string& text, const std::vector<int32_t>& tokens,
                 const std::vector<int32_t>& ends) {
    std::ranges::copy(tokens, session_->EvaluateFeed<int32_t>(text).begin());
    std::ranges::copy(ends,
                      session_->EvaluateFeed<int32_t>(text + "_ends").begin());
    const auto rows = static_cast<int64_t>(tokens.size());
    const auto sentences = static_cast<int64_t>(ends.size());
    return {AxisPart{0, rows, rows}, AxisPart{0, sentences, sentences}};
  }
  std::vector<std::byte> Output(size_t i, size_t rows) {
    const auto bytes = session_->Bytes(plan_->evaluate_ends().outputs[i].value);
    return {bytes.begin(),
            bytes.begin() +
                static_cast<ptrdiff_t>(rows * kFeatures * bytes_per_value_)};
  }
  ValueId read() const { return plan_->evaluate_ends().outputs[0].value; }

 private:
  static constexpr size_t bytes_per_value_ = 2;
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Session> session_;
};

TEST(NetworkWithoutLoss, GivesTheLastRowOfEachSentence) {
  Running run(DType::kBF16);
  run.Feed("source", {0, 0, 0, 0, 0, 0}, {1, 4, 6});
  const AxisParts parts = run.Feed("target", {1, 2, 3, 4, 1, 3}, {1, 4, 6});
  (*run).Evaluate(parts);
  const auto all = run.Output(1, 3);
  // Sentences of one token each, which are the last ones of those above.
  run.Feed("source", {0, 0, 0}, {1, 2, 3});
  (*run).Evaluate(run.Feed("target", {1, 4, 3}, {1, 2, 3}));
  EXPECT_EQ(run.Output(1, 3), all);
}

TEST(NetworkWithoutLoss, GoesOnBehindWhatItHasMade) {
  Running once(DType::kBF16), again(DType::kBF16);
  for (Running* run : {&once, &again}) {
    run->Feed("source", {1, 2, 3}, {2, 3});
    (**run).Evaluate(run->Feed("target", {4, 4, 4}, {2, 3}));
  }
  // Another target: all of it, and what is behind "read" alone, whose tokens
  // are not even written again.
  once.Feed("source", {1, 2, 3}, {2, 3});
  const AxisParts parts = once.Feed("target", {2, 0, 1}, {2, 3});
  (*once).Evaluate(parts);
  again.Feed("target", {2, 0, 1}, {2, 3});
  (*again).EvaluateBehind(again.read(), parts);
  EXPECT_EQ(again.Output(1, 2), once.Output(1, 2));
  EXPECT_EQ(again.Output(0, 3), once.Output(0, 3));
}

TEST(NetworkWithoutLoss, IsNotTrained) {
  const auto plan = MakePlan(Reader(), {});
  EXPECT_EQ(plan.status().code(), StatusCode::kUsage);
  EXPECT_NE(plan.status().message().find("no loss"), std::string::npos);
}

TEST(NetworkWithoutLoss, IsTheOnlyOneWithLastRows) {
  Network net("reader", kTokens, "tokens");
  const Text text = net.TextInput("text");
  const ValueId x = net.Embedding("x", text, kVocabulary, kFeatures);
  EXPECT_EQ(net.Finish(net.LastRows(x, text)).status().code(),
            StatusCode::kUsage);
}

}  // namespace
}  // namespace thimble::testing
