// SPDX-License-Identifier: Apache-2.0
//
// The line that a terminal shows while a model is trained.
#include "progress.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "thimble/size.h"

namespace thimble::cli {
namespace {

TEST(Progress, RoundsTheArenaAsThePlanDoes) {
  constexpr uint64_t kArena = 206'771'001;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Progress progress(ends[1], /*live=*/true, kArena);
  progress.OnStep(
      {.epoch = 1, .epochs = 1, .step_in_epoch = 1, .steps_per_epoch = 2});
  close(ends[1]);
  std::string line(512, '\0');
  const ssize_t got = read(ends[0], line.data(), line.size());
  close(ends[0]);
  ASSERT_GT(got, 0);
  line.resize(static_cast<size_t>(got));
  EXPECT_NE(line.find("arena " + FormatBytesUp(kArena)), std::string::npos)
      << line;
}

}  // namespace
}  // namespace thimble::cli
