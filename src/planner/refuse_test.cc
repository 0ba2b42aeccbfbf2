// SPDX-License-Identifier: Apache-2.0
//
// The words of a refusal, of data made by hand; tests/plan_search_test.cc has
// the data of networks.
#include "planner/refuse.h"

#include <gtest/gtest.h>

#include <string>

namespace thimble::planner {
namespace {

Refusal Made() {
  Refusal refusal;
  refusal.model = "net";
  refusal.batch = 100;
  refusal.microbatch = 100;
  refusal.options.threads = 2;
  refusal.needed = 70'423'360;
  refusal.budget = 50'000'000;
  refusal.peak_op = "conv1";
  refusal.peak_bytes[static_cast<size_t>(Role::kParameter)] = 5'830'000;
  refusal.peak_bytes[static_cast<size_t>(Role::kWorkspace)] = 64'593'360;
  return refusal;
}

TEST(RefusalText, NamesSizesPeakRolesAndTheSmallestBudget) {
  EXPECT_EQ(NeedText(Made()),
            "the plan of net at batch 100 with 2 threads needs 70.43 MB, the "
            "budget is 50.00 MB; the peak stands at op 'conv1' (parameter 5.83 "
            "MB, workspace 64.59 MB). The smallest budget that works is "
            "70423360 bytes");
  EXPECT_EQ(RefusalText(Made()), NeedText(Made()));
}

TEST(RefusalText, NamesMicrobatchesGroupsAndOneThread) {
  Refusal refusal = Made();
  refusal.microbatch = 20;
  refusal.options.ghost_batch = 10;
  refusal.options.threads = 1;
  EXPECT_EQ(NeedText(refusal).find("the plan of net at batch 100 microbatch 20 "
                                   "ghost-batch 10 with 1 thread needs"),
            0u)
      << NeedText(refusal);
}

TEST(RefusalText, CountsBytesWhereSizesWouldLookAlike) {
  Refusal refusal = Made();
  refusal.budget = refusal.needed - 1;
  EXPECT_NE(NeedText(refusal).find(
                "needs 70423360 bytes, the budget is 70423359 bytes"),
            std::string::npos)
      << NeedText(refusal);
}

TEST(RefusalText, SaysWhatEachFreedomReachesAndNoOption) {
  Refusal refusal = Made();
  const auto add = [&refusal](Freedom freedom, size_t bytes,
                              int64_t microbatch) {
    Reach reach;
    reach.freedom = freedom;
    reach.arena_bytes = bytes;
    reach.microbatch = microbatch;
    refusal.reaches.push_back(reach);
  };
  add(Freedom::kOneThread, 1001, 100);
  add(Freedom::kRecomputation, 1002, 100);
  add(Freedom::kMicrobatch, 1003, 10);
  add(Freedom::kPrecision, 1005, 100);
  add(Freedom::kOneAtATime, 1004, 1);
  refusal.two_passes_may_help = true;
  const auto advice = [&refusal] {
    return RefusalText(refusal).substr(NeedText(refusal).size());
  };
  EXPECT_EQ(advice(),
            "; with one thread 1001 bytes would do"
            "; with the recomputation strategy auto 1002 bytes would do"
            "; with allow_microbatch 1003 bytes would do, at microbatch 10"
            "; with f16 in allow_precision 1005 bytes would do"
            "; with one at a time 1004 bytes would do"
            "; two_pass may take less, for more work");
  refusal.microbatch = 50;
  EXPECT_NE(advice().find("1005 bytes would do, at microbatch 100"),
            std::string::npos)
      << advice();
  refusal.options.microbatch = 50;
  EXPECT_NE(advice().find("with allow_microbatch in place of microbatch 1003"),
            std::string::npos)
      << advice();
}

}  // namespace
}  // namespace thimble::planner
