// SPDX-License-Identifier: Apache-2.0
//
// Saver: what a run leaves in its folder, and what it goes on from. Without a
// folder (TrainOptions::out_dir) it saves nothing. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "thimble/plan.h"
#include "thimble/session.h"
#include "thimble/status.h"
#include "thimble/trainer.h"
#include "train/checkpoint.h"
#include "train/out_folder.h"
#include "train/weights.h"

namespace thimble::train {

// Fails where the folder does not hold what the options say: a run to go on
// with, none, or one to replace; or where the log would be a file of it. Writes
// nothing. A folder that is not there is fine where it can be made.
Status CheckOutFolder(const TrainOptions& options);

class Saver {
 public:
  // Opens and locks the folder, which must hold what the options say: a run to
  // go on with, none, or one to replace.
  static Result<Saver> Open(const TrainOptions& options);

  bool has_folder() const { return !dir_.empty(); }
  // Whether the folder holds a run to go on with.
  bool goes_on() const { return goes_on_; }
  // What decides bits, and what the weights file says besides. Needed where
  // there is a folder, before anything is loaded or saved.
  // `files` are copied into it.
  void Describe(Settings settings, WeightsFacts facts,
                std::vector<std::string> files = {});

  // REQUIRES: goes_on().
  Result<Progress> Load(Session& session);
  // Checkpoint and weights. The state must be worth keeping.
  Status Save(Session& session, const Progress& progress);
  // The weights at the end of an epoch, from 1, to be kept beside those of
  // TrainOptions::keep_epochs − 1 before it. To be called before Save, so that
  // a run which is resumed finds them.
  Status KeepEpoch(Session& session, const Progress& progress, int64_t epoch);
  // To be called at the end. A run that was resumed with nothing left to do has
  // only read its checkpoint: the weights that it reports may have been
  // removed, or be of another step, and are written again.
  Status Finish(Session& session, const Progress& progress);

  // A sentence for errors: which files stay. Empty where there are none.
  std::string KeptText() const;
  // Where the weights are; empty without a folder.
  std::string weights_path() const;

 private:
  // What is done once, when the run first saves: files of the data come, and
  // epochs of a run that is replaced go.
  Status BeginFolder();
  // Removes epochs that are not in (epoch − keep_epochs_, epoch].
  Status RemoveEpochsBut(int64_t epoch);

  std::string dir_;
  // Before the folder, so that it goes after it is closed.
  std::unique_ptr<MadeFolders> made_;
  FileDescriptor folder_;
  bool goes_on_ = false;
  Settings settings_;
  WeightsFacts facts_;
  std::vector<std::string> files_;
  int64_t keep_epochs_ = 0;
  bool has_begun_ = false;  // BeginFolder
  bool saved_ = false;      // since this process began
  int64_t kept_step_ = -1;  // of the checkpoint on disk; -1: there is none
};

// Everything that decides bits. Threads, budget, and what shares bytes do not.
// `source` is what BatchSource::Settings gave, `target` the session's.
Settings SettingsOf(const Plan& plan, Settings source,
                    const TrainOptions& options, int64_t steps,
                    std::string_view target);

}  // namespace thimble::train
