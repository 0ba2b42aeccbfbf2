// SPDX-License-Identifier: Apache-2.0
//
// Nothing allocates during a step: not the executor, not the data, not the log,
// not the progress line.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/test_allocations.h"
#include "base/test_folder.h"
#include "progress.h"
#include "thimble/model.h"
#include "thimble/trainer.h"

namespace thimble {
namespace {

// Notes the number of allocations after step 2 and after step 50.
class CountingObserver final : public TrainObserver {
 public:
  explicit CountingObserver(TrainObserver* next) : next_(next) {}
  void OnStep(const StepEvent& event) override {
    next_->OnStep(event);
    if (event.step == 2) after_2_ = AllocationCount();
    if (event.step == 50) after_50_ = AllocationCount();
  }
  void OnEpoch(const EpochEvent& event) override { next_->OnEpoch(event); }

  int64_t after_2() const { return after_2_; }
  int64_t after_50() const { return after_50_; }

 private:
  TrainObserver* next_;
  int64_t after_2_ = -1;
  int64_t after_50_ = -2;
};

TEST(Allocations, TheCounterCounts) {
  const int64_t before = AllocationCount();
  std::vector<int>* grown = new std::vector<int>(100);
  EXPECT_GE(AllocationCount(), before + 2);
  delete grown;
}

void CheckAllocations(const char* name, const char* data_name, int64_t batch,
                      PlanOptions plan_options = {},
                      const RewiringOptions& rewiring = {}) {
  for (int threads : {1, 2}) {
    plan_options.threads = threads;
    SCOPED_TRACE(::testing::Message() << name << " " << threads);
    TestFolder folder;
    auto data = OpenDataset(data_name, {});
    ASSERT_TRUE(data.ok());
    auto model =
        BuildModel(name, {.batch = batch, .images = PresetOf(name).images});
    ASSERT_TRUE(model.ok());
    auto plan = MakePlan(*model, plan_options);
    ASSERT_TRUE(plan.ok());
    const int terminal = open("/dev/null", O_WRONLY);
    cli::Progress progress(terminal, /*live=*/true, plan->arena_bytes(),
                           std::chrono::milliseconds(0));
    CountingObserver observer(&progress);
    TrainOptions options;
    options.steps = 50;
    options.rewiring = rewiring;
    options.log_path = folder.File("log.jsonl");
    options.out_dir = folder.File("out");
    auto summary = Train(*plan, **data, options, &observer,
                         {.augment = Augment::kCropFlip});
    close(terminal);
    ASSERT_TRUE(summary.ok()) << summary.status().message();
    EXPECT_TRUE(summary->log_status.ok());
    EXPECT_EQ(observer.after_2(), observer.after_50());
    EXPECT_EQ(summary->rewirings, rewiring.every > 0 ? 49 / rewiring.every : 0);
  }
}

TEST(Allocations, NoneBetweenStep2And50WithLogProgressAndAugmentation) {
  CheckAllocations("mlp", "synthetic", 16);
  CheckAllocations("cnn", "synthetic", 16);
  CheckAllocations("wrn-10-1", "synthetic-cifar", 4);
}

TEST(Allocations, NoneBetweenStep2And50InMicrobatchesAndGroups) {
  CheckAllocations("mlp", "synthetic", 8, {.microbatch = 2});
  // What is recomputed, or done in two passes, must not allocate either.
  CheckAllocations("wrn-10-1", "synthetic-cifar", 4,
                   {.microbatch = 2,
                    .ghost_batch = 1,
                    .recompute = "recursive-1",
                    .two_pass = true});
}

TEST(Allocations, NoneBetweenStep2And50WithGradientsInBlocksOrNowhere) {
  PlanOptions options = {.microbatch = 2};
  options.precision.gradients = U8InBlocks();
  CheckAllocations("cnn", "synthetic", 4, options);
  options.precision = {.keeps_gradients = false};
  CheckAllocations("cnn", "synthetic", 4, options);
}

TEST(Allocations, NoneBetweenStep2And50WithSparseWeightsThatAreRewired) {
  for (const IndexCodec codec : {IndexCodec::kPacked, IndexCodec::kBitmap}) {
    CheckAllocations("wrn-10-1", "synthetic-cifar", 4,
                     {.sparse = {.nonzero = 0.3, .index = codec}},
                     {.every = 5});
  }
  CheckAllocations("wrn-10-1", "synthetic-cifar", 4,
                   {.optimizer = Sgd({.state = U8InBlocks()}),
                    .precision = Precision::All(DType::kF16),
                    .sparse = {.nonzero = 0.3, .block = {2, 2}},
                    .microbatch = 2},
                   {.method = RewireMethod::kSet, .every = 5});
}

}  // namespace
}  // namespace thimble
