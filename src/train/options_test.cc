// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "thimble/trainer.h"
#include "train/run_length.h"

namespace thimble::train {
namespace {

std::string OptionsRefusal(const TrainOptions& options) {
  const Status status = CheckTrainOptions(options);
  EXPECT_EQ(status.code(), StatusCode::kUsage);
  return status.message();
}

TEST(TrainOptions, AsTheyAreCanBeTrainedWith) {
  EXPECT_TRUE(CheckTrainOptions({}).ok());
  EXPECT_TRUE(CheckTrainOptions({.out_dir = "run", .resume = true}).ok());
  EXPECT_TRUE(CheckTrainOptions({.out_dir = "run", .overwrite = true}).ok());
  EXPECT_TRUE(CheckTrainOptions({.epochs = 0, .steps = 1}).ok());
}

TEST(TrainOptions, AreRefusedForTheirTextsToo) {
  EXPECT_NE(OptionsRefusal({.schedule = "up"}).find("cosine"),
            std::string::npos);
  EXPECT_NE(OptionsRefusal({.loss_scale = "3"}).find("a power of two"),
            std::string::npos);
}

TEST(TrainOptions, ThatCannotBeTrainedWithAreRefused) {
  for (const TrainOptions& options :
       {TrainOptions{.epochs = 0}, TrainOptions{.steps = -1}}) {
    EXPECT_NE(OptionsRefusal(options).find("nothing to do"), std::string::npos);
  }
  for (const double rate : {0.0, -0.1, std::nan(""), HUGE_VAL, 1e39, 1e-39}) {
    EXPECT_NE(OptionsRefusal({.learning_rate = rate}).find("learning rate"),
              std::string::npos);
  }
  EXPECT_NE(OptionsRefusal({.warmup_steps = -1}).find("warm-up"),
            std::string::npos);
}

TEST(TrainOptions, AboutAFolderNeedOneAndAgree) {
  EXPECT_NE(OptionsRefusal({.resume = true}).find("TrainOptions::out_dir"),
            std::string::npos);
  EXPECT_NE(OptionsRefusal({.overwrite = true}).find("TrainOptions::out_dir"),
            std::string::npos);
  EXPECT_NE(
      OptionsRefusal({.out_dir = "run", .resume = true, .overwrite = true})
          .find("give one of them"),
      std::string::npos);
}

TEST(RunLength, DividesStepsIntoEpochsOfWhichTheLastMayBePartial) {
  const RunLength length{.steps = 7, .steps_per_epoch = 3};
  EXPECT_EQ(length.epochs(), 3);
  std::vector<int64_t> seen;
  for (int64_t epoch = 0; epoch < length.epochs(); ++epoch) {
    for (int64_t step = length.FirstOf(epoch); step < length.EndOf(epoch);
         ++step) {
      EXPECT_EQ(length.EpochOf(step), epoch);
      EXPECT_EQ(length.StepInEpoch(step), step - length.FirstOf(epoch));
      seen.push_back(step);
    }
  }
  EXPECT_EQ(seen, std::vector<int64_t>({0, 1, 2, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace thimble::train
