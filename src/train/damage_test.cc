// SPDX-License-Identifier: Apache-2.0
//
// Flips bits of the headers of a checkpoint and a weights file, one at a
// time: each must be refused, or change nothing.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "base/test_folder.h"
#include "thimble/data.h"
#include "thimble/model.h"
#include "thimble/trainer.h"
#include "train/out_folder.h"
#include "train/test_images.h"

namespace thimble {
namespace {

uint64_t HeaderBytes(const std::string& file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  return sizeof(length) + length;
}

// Every bit with THIMBLE_LONG; else every fifth, which is in every byte and
// each of eight places in turn.
uint64_t Stride() { return std::getenv("THIMBLE_LONG") != nullptr ? 1 : 5; }

class Damage : public ::testing::Test {
 protected:
  // Two epochs, the first of which was trained before.
  Result<TrainSummary> TrainOn() {
    ModelOptions model_options;
    model_options.batch = 4;
    model_options.images = {1, 4, 4, {100.5f}, {50.25f}};
    model_options.classes = 3;
    auto model = BuildModel("lstm-1-2-2", model_options);
    if (!model.ok()) return model.status();
    auto plan = MakePlan(*model, {});
    if (!plan.ok()) return plan.status();
    TrainOptions options;
    options.steps = 4;
    options.out_dir = folder_.File("run");
    options.resume = true;
    return Train(*plan, data_, options, nullptr);
  }

  Result<EvaluateSummary> Test() {
    return Evaluate(folder_.File("run"), data_, {.batch = 4});
  }

  TestFolder folder_;
  train::testing::FewImages data_;
};

TEST_F(Damage, NoFlippedBitOfACheckpointTrainsOnInSilence) {
  ASSERT_TRUE(TrainOn().ok()) << TrainOn().status().message();
  const std::string path = train::CheckpointPath(folder_.File("run"));
  const std::string good = ReadTestFile(path);
  const uint64_t bytes = HeaderBytes(good);
  ASSERT_GT(bytes, 500u);
  for (uint64_t bit = 0; bit < 8 * bytes; bit += Stride()) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    WriteTestFile(path, bad);
    const auto resumed = TrainOn();
    ASSERT_FALSE(resumed.ok()) << "bit " << bit % 8 << " of byte " << bit / 8;
    ASSERT_EQ(ReadTestFile(path), bad) << "a damaged file was replaced";
  }
  WriteTestFile(path, good);
  EXPECT_TRUE(TrainOn().ok());
}

TEST_F(Damage, NoFlippedBitOfAWeightsFileChangesAnEvaluation) {
  ASSERT_TRUE(TrainOn().ok());
  const auto whole = Test();
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  const std::string path = train::WeightsPath(folder_.File("run"));
  const std::string good = ReadTestFile(path);
  const uint64_t bytes = HeaderBytes(good);
  uint64_t harmless = 0;
  for (uint64_t bit = 0; bit < 8 * bytes; bit += Stride()) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    WriteTestFile(path, bad);
    const auto test = Test();
    if (!test.ok()) continue;
    ++harmless;
    const std::string where = "byte " + std::to_string(bit / 8);
    EXPECT_EQ(test->weights_sha256, whole->weights_sha256) << where;
    EXPECT_EQ(test->loss, whole->loss) << where;
    EXPECT_EQ(test->metrics[0].value, whole->metrics[0].value) << where;
    EXPECT_EQ(test->model, whole->model) << where;
  }
  // The name of the seal's own entry: without it, a file of another program.
  EXPECT_LE(harmless, 8 * std::strlen("file_sha256"));
}

}  // namespace
}  // namespace thimble
