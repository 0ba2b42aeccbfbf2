// SPDX-License-Identifier: Apache-2.0
//
// What of a session goes to disk and comes back, and the folder that it goes
// to.
#include "train/state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/test_folder.h"
#include "thimble/model.h"
#include "thimble/network.h"
#include "train/checkpoint.h"
#include "train/image_facts.h"
#include "train/out_folder.h"
#include "train/weights.h"

namespace thimble::train {
namespace {

Model TinyModel(int64_t classes = 3) {
  Network net("tiny", 2);
  ValueId x = net.Images({.channels = 1, .height = 4, .width = 4});
  x = net.BatchNorm("bn", net.Linear("fc", net.Flatten(x), classes));
  auto model = net.Finish(x);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return *std::move(model);
}

class TinySession {
 public:
  explicit TinySession(const PlanOptions& options = {}, int64_t classes = 3)
      : TinySession(TinyModel(classes), options) {}
  TinySession(const Model& model, const PlanOptions& options) {
    auto plan = MakePlan(model, options);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    plan_ = std::make_unique<Plan>(*std::move(plan));
    auto session = Session::Create(*plan_, {});
    EXPECT_TRUE(session.ok()) << session.status().message();
    session_ = *std::move(session);
    session_->Initialize(1);
  }
  const Plan& plan() const { return *plan_; }
  Session& operator*() { return *session_; }
  Session* operator->() { return session_.get(); }

  // Other numbers in every value that is saved.
  void Fill(float from) {
    const StateValues values = TrainingState(*plan_);
    for (size_t i = 0; i < values.size(); ++i) {
      for (float& x : session_->Floats(values[i])) x = from += 0.5f;
    }
  }
  std::vector<float> All(const StateValues& values) {
    std::vector<float> all;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto floats = session_->Floats(values[i]);
      all.insert(all.end(), floats.begin(), floats.end());
    }
    return all;
  }

 private:
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Session> session_;
};

std::vector<std::string> NamesOf(const Plan& plan, const StateValues& values) {
  std::vector<std::string> names;
  for (size_t i = 0; i < values.size(); ++i) {
    names.push_back(plan.graph().value(values[i]).name);
  }
  return names;
}

FileDescriptor FolderOf(const TestFolder& folder) {
  auto made = PrepareOutDir(folder.File("run"));
  EXPECT_TRUE(made.ok()) << made.status().message();
  return *std::move(made);
}

TEST(StateValues, AreParametersThenStatisticsThenTheOptimizers) {
  using Names = std::vector<std::string>;
  const Names model = {"fc.weight", "fc.bias",         "bn.weight",
                       "bn.bias",   "bn.running_mean", "bn.running_var"};
  const TinySession with;
  EXPECT_EQ(NamesOf(with.plan(), ModelState(with.plan())), model);
  Names training = model;
  for (const char* name : {"fc.weight", "fc.bias", "bn.weight", "bn.bias"}) {
    training.push_back(std::string(name) + ".velocity");
  }
  EXPECT_EQ(NamesOf(with.plan(), TrainingState(with.plan())), training);
  // Without momentum there is no velocity; without training no optimizer.
  const TinySession without({.optimizer = Sgd({.momentum = 0})});
  EXPECT_EQ(NamesOf(without.plan(), TrainingState(without.plan())), model);
  const TinySession evaluates({.training = false});
  EXPECT_EQ(NamesOf(evaluates.plan(), TrainingState(evaluates.plan())), model);
}

TEST(StateValues, MayBeMoreForOneParameterThanForAnother) {
  // Of a weight in f16, moments and their scales; of vectors, moments in f32.
  const TinySession s({.optimizer = Adam({.state = DType::kF16})});
  std::vector<std::string> training = NamesOf(s.plan(), ModelState(s.plan()));
  for (const char* name : {"fc.weight", "fc.bias", "bn.weight", "bn.bias"}) {
    for (const char* kept : {".first_moment", ".second_moment"}) {
      training.push_back(std::string(name) + kept);
    }
    if (std::string(name) != "fc.weight") continue;
    training.push_back("fc.weight.first_moment_scale");
    training.push_back("fc.weight.second_moment_scale");
  }
  EXPECT_EQ(NamesOf(s.plan(), TrainingState(s.plan())), training);
}

TEST(CheckFinite, NamesAValueThatIsNoNumberAnyMore) {
  TinySession s;
  const StateValues values = TrainingState(s.plan());
  ASSERT_TRUE(CheckFinite(*s, values).ok());
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (size_t i = 0; i < values.size(); ++i) {
      float& last = s->Floats(values[i]).back();
      const float good = std::exchange(last, bad);
      const Status status = CheckFinite(*s, values);
      ASSERT_FALSE(status.ok());
      EXPECT_NE(status.message().find("'" + NamesOf(s.plan(), values)[i] + "'"),
                std::string::npos)
          << status.message();
      last = good;
    }
  }
}

TEST(Weights, ComeBackToEveryBitWithoutTheOptimizers) {
  const TestFolder folder;
  Model model = TinyModel();
  model.build_options = {{"dropout", 0.25}};
  TinySession from(model, {});
  from.Fill(100);
  const std::vector<float> mean = {100.5f, -1.0f / 3};
  const std::vector<float> stddev = {50.25f, 1e-7f};
  {
    const FileDescriptor run = FolderOf(folder);
    ASSERT_TRUE(
        SaveWeights(run, *from, ImageFacts({2, 4, 5, 3}, mean, stddev), 12)
            .ok());
  }
  TinySession to;
  to.Fill(-100);
  const std::vector<float> before = to.All(TrainingState(to.plan()));
  const Status loaded = LoadWeights(folder.File("run"), *to);
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  const StateValues kept = ModelState(to.plan());
  EXPECT_EQ(to.All(kept), from.All(kept));
  EXPECT_EQ(WeightsSha256(*to), WeightsSha256(*from));
  const std::vector<float> after = to.All(TrainingState(to.plan()));
  const auto behind = static_cast<ptrdiff_t>(to.All(kept).size());
  EXPECT_TRUE(
      std::equal(after.begin() + behind, after.end(), before.begin() + behind));
  const std::string file = ReadTestFile(WeightsPath(folder.File("run")));
  const auto names = NamesOf(to.plan(), TrainingState(to.plan()));
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(file.find("\"" + names[i] + "\"") != std::string::npos,
              i < kept.size())
        << names[i];
  }
  const auto read = ReadWeightsInfo(folder.File("run"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->model, "tiny");
  const auto images = ReadImageFacts(read->facts);
  ASSERT_TRUE(images.has_value());
  EXPECT_EQ(images->spec.channels, 2);
  EXPECT_EQ(images->spec.height, 4);
  EXPECT_EQ(images->spec.width, 5);
  EXPECT_EQ(images->spec.classes, 3);
  EXPECT_EQ(images->mean, mean);
  EXPECT_EQ(images->stddev, stddev);
  EXPECT_EQ(read->build_options.at("dropout"), 0.25);
}

TEST(Weights, OfAFileThatNamesNoBuildOptionsMeanTheDefaults) {
  const TestFolder folder;
  TinySession from;
  const FileDescriptor run = FolderOf(folder);
  const std::vector<float> one = {1.0f};
  ASSERT_TRUE(
      SaveWeights(run, *from, ImageFacts({1, 4, 4, 3}, one, one), 1).ok());
  const auto read = ReadWeightsInfo(folder.File("run"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->build_options, BuildOptionsOf({}));
}

TEST(Weights, OfAnotherModelAreRefused) {
  const TestFolder folder;
  TinySession from;
  const FileDescriptor run = FolderOf(folder);
  ASSERT_TRUE(SaveWeights(run, *from, {}, 1).ok());
  TinySession wider({}, /*classes=*/4);
  const Status status = LoadWeights(folder.File("run"), *wider);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("'fc.weight'"), std::string::npos)
      << status.message();
}

TEST(WeightsSha256, DependsOnEveryWeightButNotOnTheOptimizer) {
  TinySession s;
  const std::string sum = WeightsSha256(*s);
  const StateValues values = TrainingState(s.plan());
  const size_t in_model = ModelState(s.plan()).size();
  for (size_t i = 0; i < values.size(); ++i) {
    float& x = s->Floats(values[i]).back();
    const float old = std::exchange(x, x + 1);
    EXPECT_EQ(WeightsSha256(*s) == sum, i >= in_model) << i;
    x = old;
  }
  EXPECT_EQ(WeightsSha256(*s), sum);
}

TEST(Checkpoint, ComesBackWithProgressAndOptimizer) {
  const TestFolder folder;
  TinySession from;
  from.Fill(3);
  Progress progress = NoProgress(1);
  progress.step = 5;
  progress.epoch_loss = 1.0 / 3;
  progress.epoch_count = 9;
  progress.metrics[0].epoch_sum = 7;
  progress.metrics[0].best_test = 0.1;
  const Settings settings = {{"seed", "1"}, {"model", "tiny"}};
  const FileDescriptor run = FolderOf(folder);
  ASSERT_TRUE(SaveCheckpoint(run, *from, progress, settings).ok());
  TinySession to;
  const auto read = LoadCheckpoint(folder.File("run"), *to, settings);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->step, 5);
  EXPECT_EQ(read->epoch_loss, 1.0 / 3);
  EXPECT_EQ(read->epoch_count, 9);
  ASSERT_EQ(read->metrics.size(), 1u);
  EXPECT_EQ(read->metrics[0].epoch_sum, 7);
  EXPECT_EQ(read->metrics[0].best_test, 0.1);
  EXPECT_TRUE(std::isnan(read->metrics[0].last_test));
  EXPECT_EQ(to.All(TrainingState(to.plan())),
            from.All(TrainingState(from.plan())));
  // Runs from before must be able to go on.
  EXPECT_NE(ReadTestFile(CheckpointPath(folder.File("run")))
                .find("\"5 0x1.5555555555555p-2 7 9 0x1.999999999999ap-4 nan "
                      "nan\""),
            std::string::npos);
}

TEST(Checkpoint, WithAnotherNumberOfMetricsIsRefused) {
  const TestFolder folder;
  TinySession s;
  const FileDescriptor run = FolderOf(folder);
  for (const size_t metrics : {0u, 2u}) {
    ASSERT_TRUE(SaveCheckpoint(run, *s, NoProgress(metrics), {}).ok());
    EXPECT_FALSE(LoadCheckpoint(folder.File("run"), *s, {}).ok()) << metrics;
  }
}

TEST(Checkpoint, OfOtherSettingsIsRefusedByName) {
  const TestFolder folder;
  TinySession s;
  const FileDescriptor run = FolderOf(folder);
  const Settings settings = {{"seed", "1"}, {"model", "tiny"}};
  ASSERT_TRUE(SaveCheckpoint(run, *s, NoProgress(1), settings).ok());
  for (const auto& [name, value] : settings) {
    Settings other = settings;
    other[name] = value + "2";
    const auto read = LoadCheckpoint(folder.File("run"), *s, other);
    ASSERT_FALSE(read.ok()) << name;
    EXPECT_NE(read.status().message().find(name), std::string::npos)
        << read.status().message();
  }
  // One that is not told any more is another one too.
  for (const auto& [name, value] : settings) {
    Settings fewer = settings;
    fewer.erase(name);
    const auto read = LoadCheckpoint(folder.File("run"), *s, fewer);
    ASSERT_FALSE(read.ok()) << name;
    EXPECT_NE(read.status().message().find(name + " = " + value),
              std::string::npos)
        << read.status().message();
  }
}

TEST(OutFolder, TellsWhatItHolds) {
  const TestFolder folder;
  const std::string dir = folder.File("a/run");
  {
    const auto held = PrepareOutDir(dir);
    ASSERT_TRUE(held.ok()) << held.status().message();
    EXPECT_EQ(folder.CountFiles(), 0);
    EXPECT_FALSE(PrepareOutDir(dir).ok()) << "another run writes into it";
  }
  EXPECT_TRUE(PrepareOutDir(dir).ok());
  EXPECT_TRUE(CheckHoldsNoRun(dir).ok());
  EXPECT_EQ(*HoldsRunToResume(dir), false);

  WriteTestFile(WeightsPath(dir), "w");
  EXPECT_FALSE(CheckHoldsNoRun(dir).ok());
  EXPECT_FALSE(HoldsRunToResume(dir).ok()) << "nothing to go on from";

  WriteTestFile(CheckpointPath(dir), "c");
  EXPECT_FALSE(CheckHoldsNoRun(dir).ok());
  ASSERT_TRUE(HoldsRunToResume(dir).ok());
  EXPECT_EQ(*HoldsRunToResume(dir), true);
}

TEST(OutFolder, TheLogIsNoneOfItsFiles) {
  const TestFolder folder;
  EXPECT_TRUE(CheckIsNoOutFile(folder.path(), folder.File("log")).ok());
  for (const char* name :
       {kWeightsName, kCheckpointName, "./weights.safetensors"}) {
    EXPECT_FALSE(CheckIsNoOutFile(folder.path(), folder.File(name)).ok())
        << name;
  }
}

}  // namespace
}  // namespace thimble::train
