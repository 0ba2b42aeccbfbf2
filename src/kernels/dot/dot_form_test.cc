// SPDX-License-Identifier: Apache-2.0
#include "kernels/dot/dot_form.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "kernels/target.h"
#include "kernels/testing.h"

namespace thimble::kernels {
namespace {

// What CheckCpu says to a value of THIMBLE_DOT, which is put back.
Status CheckedWith(const char* value) {
  const char* before = std::getenv("THIMBLE_DOT");
  const std::string kept = before == nullptr ? "" : before;
  setenv("THIMBLE_DOT", value, 1);
  Status status = CheckCpu();
  setenv("THIMBLE_DOT", kept.c_str(), 1);  // empty is as good as unset
  return status;
}

TEST(DotFormChoice, RefusesAFormThatThereIsNot) {
  EXPECT_TRUE(CheckedWith("").ok());
  EXPECT_EQ(CheckedWith("emulated").ok(), IsSupported(DotForm::kEmulated));
  for (const char* value : {"native", "none", "Emulated"}) {
    const Status status = CheckedWith(value);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find("THIMBLE_DOT"), std::string::npos);
  }
}

TEST(DotFormChoice, IsNativeWhereTheTargetHasTheInstruction) {
  testing::ForEachTarget([] {
    ForceDotForm(std::nullopt);
    if (std::getenv("THIMBLE_DOT") != nullptr) return;  // it decides
    const bool native = ActiveTarget() == Target::kAvx3Bf16;
    EXPECT_EQ(ActiveDotForm(), native ? DotForm::kNative : DotForm::kNone);
    EXPECT_EQ(ArithmeticName(), TargetName(ActiveTarget()));
  });
}

TEST(DotFormChoice, EmulationHasANameOfItsOwnAndTheLongestVectors) {
  if (!IsSupported(DotForm::kEmulated)) {  // without AVX2 it is refused
    EXPECT_FALSE(CheckedWith("emulated").ok());
    return;
  }
  testing::ForEachTarget([] {
    ForceDotForm(DotForm::kEmulated);
    const Target target = ActiveTarget();
    const bool long_vectors =
        target == Target::kAvx3 || target == Target::kAvx3Bf16;
    EXPECT_EQ(ActiveDotBuild(),
              long_vectors ? DotBuild::kAvx512 : DotBuild::kAvx2);
    EXPECT_EQ(ArithmeticName(), long_vectors
                                    ? "avx512+dot"
                                    : std::string(TargetName(target)) + "+dot");
  });
}

}  // namespace
}  // namespace thimble::kernels
