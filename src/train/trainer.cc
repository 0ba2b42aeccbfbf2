// SPDX-License-Identifier: Apache-2.0
#include "thimble/trainer.h"

#include <memory>
#include <utility>

#include "base/check.h"
#include "thimble/rss.h"
#include "thimble/session.h"
#include "train/learning_rate.h"
#include "train/loop.h"
#include "train/options.h"
#include "train/reporting.h"
#include "train/saving.h"
#include "train/weights.h"

namespace thimble {
namespace {

train::RunLength LengthOf(const TrainOptions& options, const Plan& plan,
                          const Dataset& data) {
  const int64_t size = data.size(Split::kTrain);
  const int64_t steps_per_epoch = options.keep_last
                                      ? (size + plan.batch() - 1) / plan.batch()
                                      : size / plan.batch();
  return {.steps = options.steps > 0 ? options.steps
                                     : options.epochs * steps_per_epoch,
          .steps_per_epoch = steps_per_epoch};
}

train::WeightsInfo WeightsInfoOf(const Plan& plan, const Dataset& data) {
  return {plan.model(),
          data.spec(),
          {data.mean().begin(), data.mean().end()},
          {data.stddev().begin(), data.stddev().end()},
          plan.dropout()};
}

// All of it, once the folder is open.
Result<TrainSummary> RunIn(train::Saver saver, const Plan& plan,
                           const Dataset& data, const TrainOptions& options,
                           const train::Schedule& schedule,
                           TrainObserver* observer) {
  const train::RunLength length = LengthOf(options, plan, data);
  std::string fingerprint;
  if (saver.has_folder()) {
    TH_ASSIGN_OR_RETURN(fingerprint, data.Fingerprint());
  }
  TrainSummary summary;
  summary.arena_bytes = plan.arena_bytes();
  ReturnFreeHeap();
  summary.rss_base_bytes = CurrentRssBytes();
  ResetPeakRss();
  TH_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                      Session::Create(plan, {options.poison}));
  saver.Describe(train::SettingsOf(plan, data, options, length.steps,
                                   fingerprint, session->target()),
                 WeightsInfoOf(plan, data));
  train::Reporter reporter(plan, length, observer);
  train::Progress progress;
  // The log last: an old one is emptied by a run that can start only.
  if (saver.goes_on()) {
    TH_ASSIGN_OR_RETURN(progress, saver.Load(*session));
    session->GoOnAfter(options.seed, static_cast<uint64_t>(progress.step));
    summary.resumed_step = progress.step;
    TH_RETURN_IF_ERROR(reporter.GoOn(options, progress.step));
  } else {
    session->Initialize(options.seed);
    TH_RETURN_IF_ERROR(reporter.Start(options, data));
  }
  train::Loop loop({options, schedule, data, *session, saver, reporter}, length,
                   progress);
  TH_RETURN_IF_ERROR(loop.Run());
  TH_RETURN_IF_ERROR(saver.Finish(*session, progress));
  summary.stopped = loop.Stopped();
  summary.rss_peak_bytes = PeakRssBytes();
  summary.weights_sha256 = train::WeightsSha256(*session);
  summary.weights_path = saver.weights_path();
  return reporter.Finish(std::move(summary), progress);
}

}  // namespace

Result<TrainSummary> Train(const Plan& plan, const Dataset& data,
                           const TrainOptions& options,
                           TrainObserver* observer) {
  if (!plan.options().training) {
    return Status::Usage("the plan was made for evaluation only");
  }
  TH_RETURN_IF_ERROR(train::CheckData(plan, plan.train_ends(), data));
  TH_RETURN_IF_ERROR(train::CheckOptions(options, plan, data));
  TH_ASSIGN_OR_RETURN(const train::Schedule schedule,
                      train::Schedule::Parse(options.schedule));
  TH_ASSIGN_OR_RETURN(train::Saver saver, train::Saver::Open(options));
  return RunIn(std::move(saver), plan, data, options, schedule, observer);
}

}  // namespace thimble
