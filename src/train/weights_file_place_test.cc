// SPDX-License-Identifier: Apache-2.0
//
// Where an export may be written, and which files can be listed and exported.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "thimble/trainer.h"
#include "thimble/weights_file.h"
#include "train/test_images.h"
#include "train/test_sparse_file.h"

namespace thimble {
namespace {

using train::CheckpointPath;
using train::testing::Contents;
using train::testing::Mentions;

class SparseFilePlaces : public train::testing::SparseFile {};

TEST_F(SparseFilePlaces, ExportsAreRefusedWhereTheyWouldDestroySomething) {
  WriteTestFile(to_, "precious");
  EXPECT_TRUE(Mentions(ExportDense(run_, to_).status(),
                       to_ + " is there already; choose another name, or"));
  EXPECT_EQ(ReadTestFile(to_), "precious");
  EXPECT_TRUE(ExportDense(run_, to_, {.overwrite = true}).ok());
  EXPECT_NE(ReadTestFile(to_), "precious");
  const Status self =
      ExportDense(run_, run_ + "/./weights.safetensors", {.overwrite = true})
          .status();
  EXPECT_TRUE(Mentions(self, "is the file that is read")) << self.message();
  EXPECT_EQ(ReadTestFile(path_), good_);
  const std::string checkpoint = run_ + "/checkpoint.safetensors";
  WriteTestFile(checkpoint, "precious");
  EXPECT_TRUE(
      Mentions(ExportDense(run_, checkpoint, {.overwrite = true}).status(),
               "is a run's checkpoint"));
  EXPECT_EQ(ReadTestFile(checkpoint), "precious");
  const std::string link = folder_.File("link");
  ASSERT_EQ(symlink(to_.c_str(), link.c_str()), 0);
  EXPECT_TRUE(Mentions(ExportDense(run_, link, {.overwrite = true}).status(),
                       "not a regular file"));
  EXPECT_TRUE(Mentions(ExportDense(run_, run_, {.overwrite = true}).status(),
                       "not a regular file"));
  EXPECT_FALSE(ExportDense(run_, folder_.File("none/dense")).ok());
  EXPECT_TRUE(Mentions(InspectFile(folder_.path()).status(),
                       "weights.safetensors is not there; give a file, or"));
  EXPECT_FALSE(InspectFile(folder_.File("nothing")).ok());
}

TEST_F(SparseFilePlaces, FilesOfOtherProgramsAreListedButNotExported) {
  Contents contents = Read();
  contents.metadata = {{"format", "pt"}, {"nonzero", "x"}};
  Write(contents);
  const auto file = InspectFile(path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->format, "pt");
  EXPECT_EQ(file->model, "");
  EXPECT_FALSE(file->steps.has_value());
  EXPECT_FALSE(file->sealed);
  EXPECT_FALSE(file->sparse.has_value());
  EXPECT_EQ(file->tensors.size(), contents.tensors.size());
  EXPECT_TRUE(Mentions(ExportDense(path_, to_).status(),
                       "is of another program; give the weights that"));
  WriteTestFile(path_, "no safetensors");
  EXPECT_FALSE(InspectFile(path_).ok());
}

TEST_F(SparseFilePlaces, CheckpointsAreListedWithTheirVelocities) {
  const Plan plan = MakePlanOf(IndexCodec::kPacked);
  const train::testing::FewImages data;
  TrainOptions options;
  options.steps = 4;
  options.out_dir = run_;
  options.overwrite = true;
  const auto trained = Train(plan, data, options, nullptr);
  ASSERT_TRUE(trained.ok()) << trained.status().message();
  const auto weights = InspectFile(run_);
  const auto file = InspectFile(CheckpointPath(run_));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->format, "thimble-checkpoint-2");
  EXPECT_EQ(file->model, "tiny");
  EXPECT_EQ(file->steps, 4u);
  EXPECT_TRUE(file->sealed);
  ASSERT_TRUE(file->sparse.has_value());
  ASSERT_TRUE(weights->sparse.has_value());
  EXPECT_EQ(file->sparse->index_bytes, weights->sparse->index_bytes);
  for (size_t m = 0; m < 2; ++m) {
    EXPECT_EQ(file->sparse->weights[m].name, weights->sparse->weights[m].name);
    EXPECT_EQ(file->sparse->weights[m].kept, weights->sparse->weights[m].kept);
  }
  EXPECT_EQ(file->tensors.back().name, "sparse.velocity");
  EXPECT_EQ(file->tensors.back().bytes, file->sparse->bytes);
  EXPECT_TRUE(Mentions(ExportDense(CheckpointPath(run_), to_).status(),
                       "is a checkpoint; give the weights that"));
}

}  // namespace
}  // namespace thimble
