// SPDX-License-Identifier: Apache-2.0
//
// The line that a terminal shows while a model is trained.
#include "progress.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "thimble/size.h"

namespace thimble::cli {
namespace {

constexpr uint64_t kArena = 206'771'001;

// What `tell` makes a progress write.
std::string Written(bool live, const std::function<void(Progress&)>& tell) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  Progress progress(ends[1], live, kArena);
  tell(progress);
  close(ends[1]);
  std::string text(1024, '\0');
  const ssize_t got = read(ends[0], text.data(), text.size());
  close(ends[0]);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

constexpr StepEvent kStep = {.epoch = 1,
                             .epochs = 1,
                             .step_in_epoch = 1,
                             .steps_per_epoch = 2,
                             .axis = "tokens",
                             .per_second = 512};

TEST(Progress, RoundsTheArenaAsThePlanDoes) {
  const std::string line =
      Written(/*live=*/true, [](Progress& p) { p.OnStep(kStep); });
  EXPECT_NE(line.find("arena " + FormatBytesUp(kArena)), std::string::npos)
      << line;
}

TEST(Progress, OfAnEpochOfImagesNamesNoMetric) {
  EXPECT_EQ(Written(/*live=*/false,
                    [](Progress& p) {
                      p.OnEpoch({.epoch = 3,
                                 .train_loss = 0.25,
                                 .metrics = {{"accuracy", true, 0.5, 0.75}},
                                 .axis = "images",
                                 .per_second = 1234.4,
                                 .seconds = 2});
                    }),
            "epoch 3  loss 0.2500  train 50.00%  test 75.00%  1234 images/s  "
            "2.0 s\n");
}

TEST(Progress, OfOtherMetricsTellsNamesAndNumbers) {
  const EpochEvent event = {
      .epoch = 1,
      .train_loss = 2,
      .metrics = {{"bits", false, 3.5, 3.25}, {"word accuracy", true, 0.125}},
      .axis = "tokens",
      .per_second = kNoNumber,
      .seconds = 1};
  const std::string text = Written(/*live=*/true, [&](Progress& p) {
    p.OnEpoch(event);
    p.OnStep(kStep);
  });
  EXPECT_EQ(text.find("epoch 1  loss 2.0000  train bits 3.5000  test bits "
                      "3.2500  train word accuracy 12.50%  1.0 s\n"),
            0u)
      << text;
  EXPECT_NE(text.find(" best 3.2500  512 tokens/s  "), std::string::npos)
      << text;
}

}  // namespace
}  // namespace thimble::cli
