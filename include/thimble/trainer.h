// SPDX-License-Identifier: Apache-2.0
//
// Train and Evaluate: epochs over a source of batches inside a planned arena.
// Nothing is allocated between the steps of an epoch, with the log and an
// observer on.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "thimble/batches.h"
#include "thimble/data.h"
#include "thimble/graph.h"
#include "thimble/plan.h"
#include "thimble/plan_search.h"
#include "thimble/rewiring.h"
#include "thimble/status.h"

namespace thimble {

// Where there is nothing to tell.
inline constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

struct StepEvent {
  int64_t epoch = 0;          // from 1
  int64_t epochs = 0;         // of the whole run, a last partial one counted
  int64_t step = 0;           // from 1, over the whole run
  int64_t steps = 0;          // of the whole run
  int64_t step_in_epoch = 0;  // from 1
  int64_t steps_per_epoch = 0;
  double loss = 0;
  double learning_rate = 0;
  double loss_scale = kNoNumber;  // NaN where there is none
  // A gradient was infinite or no number: nothing was changed.
  bool skipped = false;
  std::string_view axis;    // what is counted: "images"; the plan's own text
  double per_second = 0;    // of it, in this epoch so far
  double seconds_left = 0;  // of training; evaluation not counted
};

// A metric of the model over an epoch, as a mean.
struct EpochMetric {
  std::string name;
  bool is_share = false;  // of 0 to 1: it counts what something holds for
  double train = 0;       // while the weights moved
  double test = kNoNumber;
};

// Whether a metric's value is better than the best one so far, which is NaN at
// first: of shares more is better, of others, which are costs, less.
constexpr bool IsBetter(bool is_share, double value, double best) {
  return is_share ? !(best >= value) : !(best <= value);
}

struct EpochEvent {
  int64_t epoch = 0;
  double train_loss = 0;  // mean over the epoch's steps
  double test_loss = kNoNumber;
  std::vector<EpochMetric> metrics;  // in the model's order
  std::string axis;
  // NaN where a resumed run had nothing left of it but the test.
  double per_second = 0;
  double seconds = 0;  // training and evaluation
};

// Told of progress as it happens. Must not allocate in OnStep if the run is to
// keep its promise.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void OnStep(const StepEvent& event) = 0;
  virtual void OnEpoch(const EpochEvent& event) = 0;
};

struct TrainOptions {
  int64_t epochs = 10;
  int64_t steps = 0;  // above 0: this many steps instead of epochs
  uint64_t seed = 1;
  double learning_rate = 0.1;
  // Or constant, inverse-sqrt, or steps:0.5=0.2,… (from half of the run on 0.2
  // of the rate).
  std::string schedule = "cosine";
  int64_t warmup_steps = 0;
  // By what the loss is multiplied so that gradients of 16 bits do not vanish.
  // dynamic: by 65,536 at first, halved when a gradient becomes infinite, whose
  // step is then skipped, and doubled after 2,000 steps without that; apex-2018
  // and fairseq: the same with other constants; a power of two: always this;
  // none. Empty: dynamic where activations or gradients are f16, else none.
  std::string loss_scale;
  // Of a plan with sparse weights; nothing without.
  RewiringOptions rewiring;
  bool poison = false;  // see SessionOptions
  std::string out_dir;  // weights and checkpoint, at each epoch's end and on
                        // a stop; empty: nowhere
  // The weights of so many epochs stay in out_dir, the last ones, each as it
  // was at its end: what a mean can be taken of.
  int64_t keep_epochs = 0;
  // Go on from the checkpoint in out_dir, to the same bits as a run that was
  // never stopped; start anew where there is none.
  bool resume = false;
  // Start anew where out_dir holds a run already, and replace it. Without it,
  // and without `resume`, such a folder is refused.
  bool overwrite = false;
  // JSON lines; empty: none. Not a file that is written to out_dir.
  std::string log_path;
  // Set to true from outside (a signal handler) to end after the current step.
  const std::atomic<bool>* stop = nullptr;
};

// A metric on the test split over a run. NaN where a stop came before the first
// test, or where there is no such split.
struct TestMetric {
  std::string name;
  bool is_share = false;
  double best = kNoNumber;  // see IsBetter
  double last = kNoNumber;
};

struct TrainSummary {
  uint64_t arena_bytes = 0;
  int64_t rss_base_bytes = 0;  // before the arena was taken
  int64_t rss_peak_bytes = 0;
  // Since the process began, so that planning counts too.
  int64_t rss_process_peak_bytes = 0;
  std::string axis;
  // NaN where nothing was trained: the resumed run was finished already.
  double per_second = kNoNumber;
  std::vector<TestMetric> metrics;  // in the model's order
  double final_train_loss = kNoNumber;
  int64_t steps = 0;         // of the whole run, before a resume too
  int64_t resumed_step = 0;  // 0: started anew
  int64_t skipped = 0;       // of the steps, see TrainOptions::loss_scale
  int64_t rewirings = 0;     // of sparse weights
  std::string weights_sha256;
  std::string weights_path;  // empty without out_dir
  bool stopped = false;      // by TrainOptions::stop
  // Not ok where the log could not be written to its end.
  Status log_status;

  // The metric of this name. REQUIRES: the model has it.
  const TestMetric& metric(std::string_view name) const;
};

// The summary as one JSON object: the last line of the log.
std::string SummaryJson(const TrainSummary& summary);

// Whether the options can begin a run, as far as they tell by themselves. Train
// asks too; this is for those who plan in between, which may take long.
Status CheckTrainOptions(const TrainOptions& options);

// Whether the folder and the log of a run can be what its options say, as far
// as that is seen without writing: a folder that holds another run, a log that
// is no file. Train asks too; this is for those who plan in between.
Status CheckRunFiles(const TrainOptions& options);

// Trains on what `source` gives, which must be what the plan's feeds take.
// `observer` may be null.
Result<TrainSummary> Train(const Plan& plan, BatchSource& source,
                           const TrainOptions& options,
                           TrainObserver* observer);

// The same with MakeImageBatches(data, images).
Result<TrainSummary> Train(const Plan& plan, const Dataset& data,
                           const TrainOptions& options, TrainObserver* observer,
                           const ImageBatchOptions& images = {});

struct EvaluateOptions {
  int64_t batch = 100;
  int threads = 1;
  std::optional<uint64_t> budget;
  // Above 0: the mean of the weights of the run's last so many epochs, of those
  // that it keeps (TrainOptions::keep_epochs), in place of the weights.
  int64_t average = 0;
};

struct EvaluateSummary {
  std::string model;
  uint64_t arena_bytes = 0;
  std::string axis;   // what is counted: "images"
  int64_t count = 0;  // of it, in the test split
  double loss = 0;
  struct Metric {
    std::string name;
    bool is_share = false;
    double value = 0;
  };
  std::vector<Metric> metrics;  // in the model's order
  std::string weights_sha256;
};

// Tests the weights that Train wrote to `dir` on the data set's test split.
Result<EvaluateSummary> Evaluate(const std::string& dir, const Dataset& data,
                                 const EvaluateOptions& options);

// The same in two steps, for those who tell more of a refusal than its message:
// PlanEvaluation's plan, if it fits, is the one that Evaluate takes.
Result<PlanSearch> PlanEvaluation(const std::string& dir,
                                  const EvaluateOptions& options);
// `average` is that of the options.
Result<EvaluateSummary> Evaluate(const std::string& dir, const Plan& plan,
                                 BatchSource& source, int64_t average = 0);
Result<EvaluateSummary> Evaluate(const std::string& dir, const Plan& plan,
                                 const Dataset& data, int64_t average = 0);

}  // namespace thimble
