// SPDX-License-Identifier: Apache-2.0
#include "kernels/target.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

// Sets THIMBLE_TARGET, and puts back what it was.
class TargetVariable {
 public:
  explicit TargetVariable(const std::string& value) {
    const char* before = std::getenv("THIMBLE_TARGET");
    if (before != nullptr) before_ = before;
    setenv("THIMBLE_TARGET", value.c_str(), 1);
  }
  ~TargetVariable() { setenv("THIMBLE_TARGET", before_.c_str(), 1); }
  TargetVariable(const TargetVariable&) = delete;
  TargetVariable& operator=(const TargetVariable&) = delete;

 private:
  std::string before_;  // empty is as good as unset
};

std::vector<Target> TestedTargets() {
  std::vector<Target> tested;
  testing::ForEachTarget([&] { tested.push_back(ActiveTarget()); });
  return tested;
}

TEST(ForEachTarget, RunsAllThatTheCpuHas) {
  const TargetVariable variable("");
  const auto supported = SupportedTargets();
  EXPECT_EQ(TestedTargets(),
            std::vector<Target>(supported.begin(), supported.end()));
}

TEST(ForEachTarget, RunsOnlyTheOneThatTheEnvironmentNames) {
  for (const Target target : SupportedTargets()) {
    const TargetVariable variable{std::string(TargetName(target))};
    EXPECT_EQ(TestedTargets(), std::vector<Target>{target});
  }
}

TEST(DefaultTarget, HasDotProductsOnlyWhereTheyAreFast) {
  const std::vector<Target> all = {Target::kSse4, Target::kAvx2, Target::kAvx3,
                                   Target::kAvx3Bf16};
  EXPECT_EQ(DefaultTarget(all, true), Target::kAvx3Bf16);
  EXPECT_EQ(DefaultTarget(all, false), Target::kAvx3);
  const std::span<const Target> without = std::span(all).first(3);
  EXPECT_EQ(DefaultTarget(without, true), Target::kAvx3);
  EXPECT_EQ(DefaultTarget(without, false), Target::kAvx3);
  EXPECT_EQ(DefaultTarget({{Target::kSse4}}, false), Target::kSse4);
}

}  // namespace
}  // namespace thimble::kernels
