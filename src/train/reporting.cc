// SPDX-License-Identifier: Apache-2.0
#include "train/reporting.h"

#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "thimble/report.h"

namespace thimble::train {
namespace {

// NaN where there was nothing to measure.
double SpeedOf(int64_t rows, double seconds) {
  return rows > 0 ? static_cast<double>(rows) / seconds
                  : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

Reporter::Reporter(const Plan& plan, RunLength length, TrainObserver* observer)
    : plan_(plan),
      metrics_(MetricsOf(plan)),
      length_(length),
      observer_(observer) {}

Status Reporter::Start(const TrainOptions& options, const BatchSource& source) {
  TH_ASSIGN_OR_RETURN(log_, Log::Open(options.log_path, /*append=*/false));
  log_.Start(PlanJson(plan_, std::nullopt), source.LogFacts(), options.seed);
  ReserveLine();
  return Status::Ok();
}

Status Reporter::GoOn(const TrainOptions& options, int64_t step) {
  TH_ASSIGN_OR_RETURN(log_, Log::Open(options.log_path, /*append=*/true));
  log_.Resume(step);
  ReserveLine();
  return Status::Ok();
}

// A rewiring's line has a number for each sparse weight.
void Reporter::ReserveLine() {
  if (plan_.sparse().has_value()) log_.Reserve(plan_.sparse()->layout.size());
}

double Reporter::SecondsOfEpoch() const {
  return std::chrono::duration<double>(Clock::now() - begin_).count();
}

void Reporter::BeginEpoch() {
  begin_ = Clock::now();
  epoch_rows_ = 0;
}

void Reporter::Step(const StepDone& done, int64_t step, int64_t rows) {
  epoch_rows_ += rows;
  const double speed = static_cast<double>(epoch_rows_) / SecondsOfEpoch();
  const int64_t epoch = length_.EpochOf(step - 1);
  const int64_t left = (length_.steps - step) * plan_.batch();
  const StepEvent event{.epoch = epoch + 1,
                        .epochs = length_.epochs(),
                        .step = step,
                        .steps = length_.steps,
                        .step_in_epoch = step - length_.FirstOf(epoch),
                        .steps_per_epoch = length_.steps_per_epoch,
                        .loss = done.loss,
                        .learning_rate = done.rate,
                        .loss_scale = done.loss_scale,
                        .skipped = done.skipped,
                        .axis = AxisNameOf(plan_),
                        .per_second = speed,
                        .seconds_left = static_cast<double>(left) / speed};
  log_.Step(event);
  if (observer_ != nullptr) observer_->OnStep(event);
}

void Reporter::Rewired(const RewireResult& done, int64_t step,
                       Session& session) {
  const SparsePool& pool = *plan_.sparse();
  const std::byte* index = session.Bytes(pool.index).data();
  log_.Rewiring(done, step, pool.layout.size(),
                [&](size_t m) { return pool.layout.Of(index, m).kept; });
}

void Reporter::EndSteps() {
  epoch_seconds_ = SecondsOfEpoch();
  rows_ += epoch_rows_;
  train_seconds_ += epoch_seconds_;
}

EpochEvent Reporter::EventOf(int64_t epoch, const Progress& progress,
                             const TestResult& test) const {
  EpochEvent event;
  event.epoch = epoch + 1;
  int64_t with_loss = length_.EndOf(epoch) - length_.FirstOf(epoch);
  if (progress.loss_scale.has_value()) {
    with_loss -= progress.loss_scale->without_loss;
  }
  event.train_loss = progress.epoch_loss / static_cast<double>(with_loss);
  event.test_loss = test.loss;
  event.metrics.reserve(metrics_.size());
  for (size_t i = 0; i < metrics_.size(); ++i) {
    event.metrics.push_back(
        {.name = metrics_[i].name,
         .is_share = metrics_[i].is_share,
         .train = progress.metrics[i].epoch_sum /
                  static_cast<double>(progress.epoch_count),
         .test = i < test.metrics.size() ? test.metrics[i] : kNoNumber});
  }
  event.axis = AxisNameOf(plan_);
  event.per_second = SpeedOf(epoch_rows_, epoch_seconds_);
  event.seconds = SecondsOfEpoch();
  return event;
}

void Reporter::Epoch(const EpochEvent& event) {
  log_.Epoch(event);
  if (observer_ != nullptr) observer_->OnEpoch(event);
}

TrainSummary Reporter::Finish(TrainSummary summary, const Progress& progress) {
  summary.steps = progress.step;
  if (progress.loss_scale.has_value()) {
    summary.skipped = progress.loss_scale->skipped;
  }
  if (progress.rewiring.has_value()) {
    summary.rewirings = progress.rewiring->rewirings;
  }
  summary.metrics.reserve(metrics_.size());
  for (size_t i = 0; i < metrics_.size(); ++i) {
    summary.metrics.push_back({.name = metrics_[i].name,
                               .is_share = metrics_[i].is_share,
                               .best = progress.metrics[i].best_test,
                               .last = progress.metrics[i].last_test});
  }
  summary.final_train_loss = progress.final_train_loss;
  summary.axis = AxisNameOf(plan_);
  summary.per_second = SpeedOf(rows_, train_seconds_);
  log_.Summary(summary);
  summary.log_status = log_.status();
  return summary;
}

}  // namespace thimble::train
