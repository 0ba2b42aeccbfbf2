// SPDX-License-Identifier: Apache-2.0
#include "planner/recompute/segments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "planner/test_program.h"

namespace thimble::planner {
namespace {

using testing::StraightProgram;

// "[0 [0 2) [2 3) 3)": a segment with its parts.
std::string TextOf(const Segment& segment) {
  std::string text = "[" + std::to_string(segment.begin);
  for (const Segment& part : segment.parts) text += " " + TextOf(part);
  return text + " " + std::to_string(segment.end) + ")";
}

SegmentPlan Cut(const Program& program, const Chain& chain,
                const std::string& name, const SegmentCost& cost = nullptr) {
  return CutIntoSegments(program, chain, *ParseStrategy(name), cost);
}

// For strategies that look at the number of stages and at branches alone: 'b'
// is a stage with branches, any other letter one without.
std::string CutOf(const std::string& stages, const std::string& name) {
  Chain chain;
  for (const char c : stages) {
    chain.stages.emplace_back().branches = c == 'b';
  }
  return TextOf(Cut({}, chain, name).root);
}

TEST(CutIntoSegments, EveryMthStageEndsASegment) {
  EXPECT_EQ(CutOf("....", "every-2"), "[0 [0 2) [2 4) 4)");
  EXPECT_EQ(CutOf(".....", "every-2"), "[0 [0 2) [2 4) [4 5) 5)");
  EXPECT_EQ(CutOf("...", "every-1"), "[0 [0 1) [1 2) [2 3) 3)");
  EXPECT_EQ(CutOf("...", "every-7"), "[0 [0 3) 3)");
}

TEST(CutIntoSegments, TheStemBelongsToTheFirstBlockAndTheHeadKeepsAll) {
  EXPECT_EQ(CutOf(".bbb..", "residual-1"), "[0 [0 2) [2 3) [3 4) 4)");
  EXPECT_EQ(CutOf(".bbb..", "residual-2"), "[0 [0 3) [3 4) 4)");
  EXPECT_EQ(CutOf(".b.b.", "residual-1"), "[0 [0 2) [2 4) 4)");
  // Without branches each stage is a block.
  EXPECT_EQ(CutOf("...", "residual-2"), "[0 [0 2) [2 3) 3)");
}

TEST(CutIntoSegments, TheStarCutsEachSegmentIntoItsStages) {
  EXPECT_EQ(CutOf(".bbb..", "residual-2*"),
            "[0 [0 [0 1) [1 2) [2 3) 3) [3 [3 4) 4) 4)");
}

TEST(CutIntoSegments, RecursiveCutsCutTheirParts) {
  EXPECT_EQ(CutOf("....", "recursive-1"),
            "[0 [0 [0 1) [1 2) 2) [2 [2 3) [3 4) 4) 4)");
  EXPECT_EQ(CutOf("...", "recursive-1"), "[0 [0 1) [1 [1 2) [2 3) 3) 3)");
  EXPECT_EQ(CutOf("...", "recursive-5"), "[0 [0 1) [1 2) [2 3) 3)");
  EXPECT_EQ(CutOf(".", "recursive-1"), "[0 1)");
}

// How often each stage runs forward.
std::vector<int> RunsOf(int stages, const std::string& name) {
  const Program program = StraightProgram(stages);
  const Chain chain = FindChain(program);
  EXPECT_EQ(chain.stages.size(), static_cast<size_t>(stages) + 1);
  std::vector<int> runs(chain.stages.size());
  for (OpId op : WriteScript(program, chain, Cut(program, chain, name))) {
    for (size_t s = 0; s < chain.stages.size(); ++s) {
      const auto& forward = chain.stages[s].forward;
      runs[s] += std::find(forward.begin(), forward.end(), op) != forward.end();
    }
  }
  return runs;
}

TEST(CutIntoSegments, RevolveRunsNoStageMoreThanTwiceAgain) {
  for (int n = 1; n <= 20; ++n) {
    const std::vector<int> runs = RunsOf(n, "revolve");
    EXPECT_LE(*std::max_element(runs.begin(), runs.end()), 3) << n;
  }
}

// The binomial bound: with s values kept beside the input, (s + 3)(s + 2) / 2
// stages can be reversed so: 3, 6, 10, 15.
TEST(CutIntoSegments, RevolveKeepsTheFewestValuesForThat) {
  const auto cut = [](size_t stages, const std::string& name) {
    return CutOf(std::string(stages, '.'), name);
  };
  EXPECT_EQ(cut(6, "revolve"), cut(6, "revolve-1"));
  EXPECT_EQ(cut(7, "revolve"), cut(7, "revolve-2"));
  EXPECT_NE(cut(7, "revolve"), cut(7, "revolve-1"));
  EXPECT_EQ(cut(10, "revolve"), cut(10, "revolve-2"));
  EXPECT_EQ(cut(11, "revolve"), cut(11, "revolve-3"));
  // One cut at a time: after 3 of 6, then the same with what is left.
  EXPECT_EQ(cut(3, "revolve-1"), "[0 [0 1) [1 [1 2) [2 3) 3) 3)");
  EXPECT_EQ(cut(6, "revolve-1"),
            "[0 [0 [0 1) [1 [1 2) [2 3) 3) 3) [3 [3 [3 4) [4 5) 5) [5 6) 6) "
            "6)");
}

TEST(CutIntoSegments, SqrtTakesTheCheapestOfItsSweeps) {
  const Program program = StraightProgram(16);
  const Chain chain = FindChain(program);
  std::vector<size_t> parts;
  const auto cut = [&](const SegmentCost& cost) {
    parts.clear();
    return Cut(program, chain, "sqrt",
               [&](const SegmentPlan& plan) {
                 parts.push_back(plan.root.parts.size());
                 return cost(plan);
               })
        .root.parts.size();
  };
  // Where all cost the same, the first and finest: a cut after each stage.
  EXPECT_EQ(cut([](const SegmentPlan&) { return size_t{1}; }),
            chain.stages.size());
  EXPECT_EQ(parts.size(), 7u);
  const auto by_parts = [](const SegmentPlan& plan) {
    return plan.root.parts.size();
  };
  EXPECT_EQ(cut(by_parts), *std::min_element(parts.begin(), parts.end()));
  EXPECT_LT(*std::min_element(parts.begin(), parts.end()),
            chain.stages.size() / 2);
}

}  // namespace
}  // namespace thimble::planner
