// SPDX-License-Identifier: Apache-2.0
//
// Loop: the steps of a run, epoch by epoch, each epoch with its test at the
// end. What it decides is the order of things; the work is the session's, the
// files the saver's, the words the reporter's. Between the steps of an epoch
// nothing is allocated. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "thimble/batches.h"
#include "thimble/session.h"
#include "thimble/status.h"
#include "thimble/trainer.h"
#include "train/checkpoint.h"
#include "train/evaluation.h"
#include "train/learning_rate.h"
#include "train/loss_scale.h"
#include "train/reporting.h"
#include "train/rewirer.h"
#include "train/run_length.h"
#include "train/saving.h"

namespace thimble::train {

class Loop {
 public:
  // All of them must outlive the loop.
  struct Parts {
    const TrainOptions& options;
    const Schedule& schedule;
    const LossScaler& scaler;
    const Rewirer& rewirer;
    BatchSource& source;
    Session& session;
    Saver& saver;
    Reporter& reporter;
  };
  // Goes on from `progress`, and keeps it up to date.
  Loop(const Parts& parts, RunLength length, Progress& progress);

  // To the end, or until TrainOptions::stop. What was learned is saved then.
  Status Run();
  bool Stopped() const;

 private:
  // Trains what is left of an epoch, then tests. After a resume it may begin in
  // the middle, or with nothing left but the test.
  Status Epoch();
  Status Step(int64_t epoch);
  double RateOf(int64_t step) const;
  // The end of a step: its update, and what became of it.
  Status Update(double loss, Reporter::StepDone* done);
  // Behind the update, where it was due.
  void Rewired();
  // Forward and backward of all microbatches of a step. Gives the mean loss,
  // and leaves the metrics' sums in step_metrics_. With loss scaling the loss
  // may be infinite or no number, else that is an error.
  Result<double> Differentiate(const BatchSource::StepSize& size);
  Status EndEpoch(int64_t epoch);
  // Keeps what a test has reached.
  void Note(const TestResult& test);
  // Whether the state is worth saving: what is infinite, or makes the loss so,
  // must never replace something good.
  Status CheckState();
  // REQUIRES: CheckState was ok.
  Status Save() { return with_.saver.Save(with_.session, now_); }
  Status Diverged(const std::string& what) const;

  Parts with_;
  RunLength length_;
  Progress& now_;
  std::vector<FeedBuffer> feeds_;
  std::vector<double> step_metrics_;
  TestPass test_;
};

}  // namespace thimble::train
