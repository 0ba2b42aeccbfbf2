// SPDX-License-Identifier: Apache-2.0
#include "thimble/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "thimble/rss.h"
#include "thimble/session.h"
#include "train/ends.h"
#include "train/learning_rate.h"
#include "train/loop.h"
#include "train/loss_scale.h"
#include "train/reporting.h"
#include "train/rewirer.h"
#include "train/saving.h"
#include "train/weights.h"

namespace thimble {
namespace {

train::RunLength LengthOf(const TrainOptions& options,
                          const BatchSource& source) {
  const int64_t steps_per_epoch = source.StepsPerEpoch();
  return {.steps = options.steps > 0 ? options.steps
                                     : options.epochs * steps_per_epoch,
          .steps_per_epoch = steps_per_epoch};
}

// All of it, once the folder is open.
Result<TrainSummary> RunIn(train::Saver saver, const Plan& plan,
                           BatchSource& source, const TrainOptions& options,
                           const train::Schedule& schedule,
                           const train::LossScaler& scaler,
                           const train::Rewirer& rewirer,
                           TrainObserver* observer) {
  const train::RunLength length = LengthOf(options, source);
  train::Settings settings;
  if (saver.has_folder()) {
    TH_ASSIGN_OR_RETURN(settings, source.Settings());
    settings.merge(rewirer.Settings());
  }
  TrainSummary summary;
  summary.arena_bytes = plan.arena_bytes();
  const int64_t peak_before = PeakRssBytes();
  // What planning leaves.
  ReturnFreeHeap();
  ReturnFreeStack();
  ReturnCode();
  summary.rss_base_bytes = CurrentRssBytes();
  ResetPeakRss();
  TH_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                      Session::Create(plan, {.poison = options.poison}));
  saver.Describe(train::SettingsOf(plan, std::move(settings), options,
                                   length.steps, session->target()),
                 source.WeightsFacts(), source.FilesOfWeights());
  train::Reporter reporter(plan, length, observer);
  train::Progress progress = train::NoProgress(train::MetricsOf(plan).size());
  // The log last: an old one is emptied by a run that can start only.
  if (saver.goes_on()) {
    TH_ASSIGN_OR_RETURN(progress, saver.Load(*session));
    const int64_t skipped =
        progress.loss_scale.has_value() ? progress.loss_scale->skipped : 0;
    session->GoOnAfter(options.seed, static_cast<uint64_t>(progress.step),
                       static_cast<uint64_t>(skipped));
    summary.resumed_step = progress.step;
    TH_RETURN_IF_ERROR(reporter.GoOn(options, progress.step));
  } else {
    session->Initialize(options.seed);
    if (scaler.is_on()) progress.loss_scale = scaler.Begin();
    if (rewirer.is_on()) progress.rewiring = rewirer.Begin();
    TH_RETURN_IF_ERROR(reporter.Start(options, source));
  }
  train::Loop loop(
      {options, schedule, scaler, rewirer, source, *session, saver, reporter},
      length, progress);
  TH_RETURN_IF_ERROR(loop.Run());
  TH_RETURN_IF_ERROR(saver.Finish(*session, progress));
  summary.stopped = loop.Stopped();
  summary.rss_peak_bytes = PeakRssBytes();
  summary.rss_process_peak_bytes =
      std::max(peak_before, summary.rss_peak_bytes);
  summary.weights_sha256 = train::WeightsSha256(*session);
  summary.weights_path = saver.weights_path();
  return reporter.Finish(std::move(summary), progress);
}

}  // namespace

Result<TrainSummary> Train(const Plan& plan, BatchSource& source,
                           const TrainOptions& options,
                           TrainObserver* observer) {
  if (!plan.options().training) {
    return Status::Usage("the plan was made for evaluation only");
  }
  TH_RETURN_IF_ERROR(CheckTrainOptions(options));
  TH_RETURN_IF_ERROR(source.Begin(plan, options.seed));
  if (source.StepsPerEpoch() < 1) {
    return Status::Usage(
        fmt::format("'{}' has nothing to train on", source.name()));
  }
  TH_ASSIGN_OR_RETURN(const train::Schedule schedule,
                      train::Schedule::Parse(options.schedule));
  TH_ASSIGN_OR_RETURN(
      const train::LossScaler scaler,
      train::LossScaler::Parse(options.loss_scale, plan.options().precision));
  TH_ASSIGN_OR_RETURN(const train::Rewirer rewirer,
                      train::Rewirer::Make(options.rewiring, plan));
  TH_ASSIGN_OR_RETURN(train::Saver saver, train::Saver::Open(options));
  return RunIn(std::move(saver), plan, source, options, schedule, scaler,
               rewirer, observer);
}

}  // namespace thimble
