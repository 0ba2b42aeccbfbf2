// SPDX-License-Identifier: Apache-2.0
//
// Reporter: what a run tells while it goes on, to its log and its observer, and
// what it sums up at its end. It also holds the clock. Begin-, step and epoch
// calls allocate nothing. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "thimble/batches.h"
#include "thimble/plan.h"
#include "thimble/status.h"
#include "thimble/trainer.h"
#include "train/checkpoint.h"
#include "train/ends.h"
#include "train/evaluation.h"
#include "train/log.h"
#include "train/run_length.h"

namespace thimble::train {

class Reporter {
 public:
  // `observer` may be null.
  Reporter(const Plan& plan, RunLength length, TrainObserver* observer);

  // Opens the log with a line for a new run, or for one that goes on after
  // `step` steps.
  Status Start(const TrainOptions& options, const BatchSource& source);
  Status GoOn(const TrainOptions& options, int64_t step);

  // The steps of an epoch begin, with it the clock.
  void BeginEpoch();
  struct StepDone {
    double loss = 0;
    double rate = 0;
    double loss_scale = kNoNumber;  // NaN where there is none
    bool skipped = false;
  };
  // A step of `rows` rows is done, the run's `step`-th, from 1.
  void Step(const StepDone& done, int64_t step, int64_t rows);
  // Behind step `step`, sparse weights were rewired.
  void Rewired(const RewireResult& done, int64_t step, Session& session);
  // The steps of an epoch have ended; its test may follow.
  void EndSteps();
  // What to tell of an epoch, whose test has just ended; one without metrics
  // where there was none.
  EpochEvent EventOf(int64_t epoch, const Progress& progress,
                     const TestResult& test) const;
  void Epoch(const EpochEvent& event);

  // Writes the log's last line. `summary` has what only others know; steps,
  // losses, accuracies, speed and the log's own status are filled in here.
  TrainSummary Finish(TrainSummary summary, const Progress& progress);

 private:
  using Clock = std::chrono::steady_clock;
  double SecondsOfEpoch() const;
  void ReserveLine();

  const Plan& plan_;
  std::vector<MetricName> metrics_;
  RunLength length_;
  TrainObserver* observer_;
  Log log_;
  Clock::time_point begin_;   // of the epoch
  int64_t epoch_rows_ = 0;    // since then
  double epoch_seconds_ = 0;  // of its steps
  int64_t rows_ = 0;          // of all epochs before
  double train_seconds_ = 0;  // of all steps
};

}  // namespace thimble::train
