// SPDX-License-Identifier: Apache-2.0
//
// Loop: the steps of a run, epoch by epoch, each epoch with its test at the
// end. What it decides is the order of things; the work is the session's, the
// files the saver's, the words the reporter's. Between the steps of an epoch
// nothing is allocated. One thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/permutation.h"
#include "thimble/data.h"
#include "thimble/session.h"
#include "thimble/status.h"
#include "thimble/trainer.h"
#include "train/checkpoint.h"
#include "train/learning_rate.h"
#include "train/options.h"
#include "train/reporting.h"
#include "train/run_length.h"
#include "train/saving.h"

namespace thimble::train {

class Loop {
 public:
  // All of them must outlive the loop.
  struct Parts {
    const TrainOptions& options;
    const Schedule& schedule;
    const Dataset& data;
    Session& session;
    Saver& saver;
    Reporter& reporter;
  };
  // Goes on from `progress`, and keeps it up to date.
  Loop(const Parts& parts, RunLength length, Progress& progress)
      : with_(parts),
        length_(length),
        now_(progress),
        augment_(AugmentOf(parts.options, parts.data)) {}

  // To the end, or until TrainOptions::stop. What was learned is saved then.
  Status Run();
  bool Stopped() const;

 private:
  // Trains what is left of an epoch, then tests. After a resume it may begin in
  // the middle, or with nothing left but the test.
  Status Epoch();
  Status Step(int64_t epoch, const KeyedPermutation& order);
  // Puts `count` images of the epoch, from its `first` on, where the session
  // reads them.
  Status FeedTraining(int64_t epoch, const KeyedPermutation& order,
                      int64_t first, int64_t count);
  Status EndEpoch(EpochEvent event);
  // Whether the state is worth saving: what is infinite, or makes the loss so,
  // must never replace something good.
  Status CheckState();
  // REQUIRES: CheckState was ok.
  Status Save() { return with_.saver.Save(with_.session, now_); }
  Status Diverged(const std::string& what) const;

  Parts with_;
  RunLength length_;
  Progress& now_;
  Augment augment_;
};

}  // namespace thimble::train
