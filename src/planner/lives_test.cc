// SPDX-License-Identifier: Apache-2.0
#include "planner/lives.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/placed_buffers.h"
#include "planner/test_program.h"

namespace thimble::planner {
namespace {

using testing::kUnit;
using testing::StraightProgram;
using testing::TestProgram;

using Names = std::vector<std::string>;

Names NamesOf(const Program& program, const std::vector<bool>& chosen) {
  Names names;
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i]) names.push_back(program.graph.values()[i].name);
  }
  return names;
}

Names NamesOf(const Program& program, const std::vector<ValueId>& values) {
  Names names;
  for (ValueId v : values) names.push_back(program.graph.value(v).name);
  return names;
}

// Of the whole schedule, in units.
std::vector<size_t> UnitsOverTime(const Program& program,
                                  const PlanOptions& options) {
  std::vector<size_t> units = LiveBytes(program, options);
  for (size_t& u : units) u /= kUnit;
  return units;
}

TEST(FindLasting, ListsWhatIsNeededLongerThanOpsReadIt) {
  const Program program = StraightProgram(2);
  const LastingValues lasting = FindLasting(program);
  EXPECT_EQ(NamesOf(program, lasting.state), Names({"w"}));
  EXPECT_EQ(NamesOf(program, lasting.carried), Names());
  EXPECT_EQ(NamesOf(program, lasting.read_later),
            Names({"w", "loss", "loss.1", "f1.grad"}));
  EXPECT_EQ(NamesOf(program, lasting.fed), Names({"images", "labels"}));
  EXPECT_EQ(NamesOf(program, lasting.told), Names({"loss", "loss.1"}));
}

TEST(FindLasting, SeveralMicrobatchesCarryWhatTheUpdateReadsButNoState) {
  const Program program = StraightProgram(2, {}, /*microbatches=*/2);
  EXPECT_EQ(NamesOf(program, FindLasting(program).carried), Names({"f1.grad"}));
}

TEST(FindLasting, AProgramWithoutTrainingHasOnlyState) {
  TestProgram t;
  const ValueId w = t.State("w", 1);
  const ValueId mean = t.State("mean", 1, Role::kStatistic);
  const ValueId images = t.Input("eval.images", 1);
  t.Other(Phase::kEvaluate, "eval", {images, w, mean}, {1});
  const LastingValues lasting = FindLasting(t.program);
  EXPECT_EQ(NamesOf(t.program, lasting.state), Names({"w", "mean"}));
  EXPECT_EQ(NamesOf(t.program, lasting.read_later), Names());
  EXPECT_TRUE(lasting.fed.empty());
  EXPECT_TRUE(lasting.told.empty());
}

TEST(MayOverwrite, NotWhatIsAlsoReadThroughAnInputThatMayNot) {
  const ValueId a{0};
  const ValueId b{1};
  const std::vector<InPlacePair> first = {{0, 0}};
  const std::vector<InPlacePair> both = {{0, 0}, {1, 0}};
  const std::vector<InPlacePair> two_outputs = {{0, 0}, {1, 1}};
  EXPECT_TRUE(MayOverwrite(std::vector{a, b}, first, {0, 0}));
  EXPECT_FALSE(MayOverwrite(std::vector{a, a}, first, {0, 0}));
  EXPECT_FALSE(MayOverwrite(std::vector{a, b, a}, both, {0, 0}));
  EXPECT_TRUE(MayOverwrite(std::vector{a, b, a}, both, {1, 0}));
  // x + x may be written over x.
  EXPECT_TRUE(MayOverwrite(std::vector{a, a}, both, {0, 0}));
  EXPECT_TRUE(MayOverwrite(std::vector{a, a}, both, {1, 0}));
  // The second output would destroy what makes the first one.
  EXPECT_FALSE(MayOverwrite(std::vector{a, a}, two_outputs, {0, 0}));
}

// "input>output" of the pairs that are taken.
template <typename IsFree, typename... IsBetter>
Names Chosen(const std::vector<InPlacePair>& pairs, const IsFree& is_free,
             const IsBetter&... is_better) {
  Names taken;
  ChooseOverwritten(pairs, is_free, is_better..., [&](const InPlacePair& p) {
    taken.push_back(std::to_string(p.input) + ">" + std::to_string(p.output));
  });
  return taken;
}

TEST(ChooseOverwritten, TakesTheFirstFreeInputOfEachOutput) {
  const std::vector<InPlacePair> pairs = {{2, 1}, {0, 0}, {1, 0}, {3, 1}};
  const auto all = [](const InPlacePair&) { return true; };
  EXPECT_EQ(Chosen(pairs, all), Names({"0>0", "2>1"}));
  const auto late = [](const InPlacePair& p) { return p.input % 2 == 1; };
  EXPECT_EQ(Chosen(pairs, late), Names({"1>0", "3>1"}));
  const auto none = [](const InPlacePair&) { return false; };
  EXPECT_EQ(Chosen(pairs, none), Names());
}

TEST(ChooseOverwritten, TakesTheBestFreeInput) {
  const std::vector<InPlacePair> pairs = {{0, 0}, {1, 0}, {2, 0}};
  const auto higher = [](const InPlacePair& a, const InPlacePair& b) {
    return a.input > b.input;
  };
  const auto all = [](const InPlacePair&) { return true; };
  EXPECT_EQ(Chosen(pairs, all, higher), Names({"2>0"}));
  const auto low = [](const InPlacePair& p) { return p.input < 2; };
  EXPECT_EQ(Chosen(pairs, low, higher), Names({"1>0"}));
}

TEST(ChooseOverwritten, TakesAnInputOnce) {
  const auto all = [](const InPlacePair&) { return true; };
  EXPECT_EQ(Chosen({{0, 0}, {0, 1}}, all), Names({"0>0"}));
  EXPECT_EQ(Chosen({{0, 0}, {0, 1}, {1, 1}}, all), Names({"0>0", "1>1"}));
}

TEST(LiveBytesOverTime, AddsUpWhatIsLiveAtEachTime) {
  LiveBytesOverTime live(4);
  EXPECT_EQ(live.Sum(), std::vector<size_t>({0, 0, 0, 0}));
  live.Add({0, 4}, 1);
  live.Add({1, 3}, 10);
  live.Add({2, 3}, 100);
  live.Add({3, 4}, 1000);
  live.Add({2, 2}, 10000);  // never live
  EXPECT_EQ(live.Sum(), std::vector<size_t>({1, 11, 111, 1001}));
  EXPECT_EQ(live.Most(), 1001u);
  live.Reset(2);
  EXPECT_EQ(live.Sum(), std::vector<size_t>({0, 0}));
  EXPECT_EQ(live.Most(), 0u);
  live.Add({0, 1}, 7);
  EXPECT_EQ(live.Most(), 7u);
}

// Worked out by hand from the table in the architecture page:
// f1:       w images labels x1(4)                       = 7
// f2:       and x2(4)                                   = 11
// loss:     and loss, correct                           = 13
// loss.grad: and g2(4); then x2 and labels are done     = 17
// f2.grad:  w images x1 g2 g1 loss correct              = 16
// f1.grad:  w images g1 gw loss correct                 = 9
// w.update: w gw loss correct                           = 4
// eval:     w, two inputs, three outputs                = 6
TEST(Lives, OfAStraightProgramAreThoseCountedByHand) {
  EXPECT_EQ(UnitsOverTime(StraightProgram(2), {}),
            std::vector<size_t>({7, 11, 13, 17, 16, 9, 4, 6}));
}

TEST(Lives, AGradientThatIsWrittenOverAnotherTakesNoBytes) {
  const Program program = StraightProgram(2, {.in_place = {{1, 0}}});
  EXPECT_EQ(UnitsOverTime(program, {}),
            std::vector<size_t>({7, 11, 13, 17, 12, 9, 4, 6}));
  EXPECT_EQ(UnitsOverTime(program, {.inplace = false}),
            std::vector<size_t>({7, 11, 13, 17, 16, 9, 4, 6}));
}

TEST(Lives, WhatALaterOpReadsIsNotOverwritten) {
  TestProgram t;
  const ValueId w = t.State("w", 1);
  const ValueId images = t.Input("images", 1);
  const ValueId labels = t.Input("labels", 1);
  const ValueId a = t.Forward("a", {images}, {4})[0];
  const ValueId b = t.Forward("b", {a}, {4}, {.in_place = {{0, 0}}})[0];
  const auto ends =
      t.Forward("loss", {a, b, labels}, {1, 1}, {}, Role::kStatistic);
  t.TrainEnds(images, labels, ends[0], ends[1]);
  t.Other(Phase::kUpdate, "w.update", {w}, {});
  const ValueId to_test = t.Input("eval.images", 1);
  const auto told = t.Other(Phase::kEvaluate, "eval", {to_test}, {1, 1, 1});
  t.EvaluateEnds(to_test, to_test, told[0], told[1], told[2]);
  // a: w images labels a(4) = 7; b: w labels a b = 10; loss: and two = 12.
  EXPECT_EQ(UnitsOverTime(t.program, {}),
            std::vector<size_t>({7, 10, 12, 3, 5}));
}

TEST(Lives, CarriedGradientsLiveFromTheFirstOp) {
  // One unit more for gw in every op of the microbatch before f1.grad.
  EXPECT_EQ(UnitsOverTime(StraightProgram(2, {}, /*microbatches=*/2), {}),
            std::vector<size_t>({8, 12, 14, 18, 17, 9, 4, 6}));
}

TEST(Lives, ScratchIsThereForOneMomentAndForEachThread) {
  const Program program = StraightProgram(
      2, {.scratch = {.per_thread = 3 * kUnit, .shared = kUnit}});
  EXPECT_EQ(UnitsOverTime(program, {.threads = 2}),
            std::vector<size_t>({7, 11, 13, 17, 16 + 7, 9, 4, 6}));
}

TEST(Lives, WithoutSharingEverythingLivesThroughItsPartOfTheSchedule) {
  // Training: w images labels x1 x2 loss correct g2 g1 gw = 1 + 2 + 16 + 2 + 1.
  EXPECT_EQ(UnitsOverTime(StraightProgram(2), {.sharing = false}),
            std::vector<size_t>({22, 22, 22, 22, 22, 22, 22, 6}));
}

}  // namespace
}  // namespace thimble::planner
