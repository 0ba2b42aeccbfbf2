// SPDX-License-Identifier: Apache-2.0
#include "train/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "train/ends.h"
#include "train/state.h"

namespace thimble::train {

Loop::Loop(const Parts& parts, RunLength length, Progress& progress)
    : with_(parts),
      length_(length),
      now_(progress),
      feeds_(FeedsOf(parts.session, parts.session.plan().train_ends())),
      step_metrics_(progress.metrics.size()),
      test_(parts.session, parts.source) {}

bool Loop::Stopped() const {
  return with_.options.stop != nullptr &&
         with_.options.stop->load(std::memory_order_relaxed);
}

Status Loop::Run() {
  while ((now_.step < length_.steps || now_.epoch_count > 0) && !Stopped()) {
    TH_RETURN_IF_ERROR(Epoch());
  }
  return Status::Ok();
}

Status Loop::Epoch() {
  with_.reporter.BeginEpoch();
  const int64_t epoch =
      length_.EpochOf(now_.step - (now_.epoch_count > 0 ? 1 : 0));
  const int64_t end = length_.EndOf(epoch);
  while (now_.step < end && !Stopped()) TH_RETURN_IF_ERROR(Step(epoch));
  with_.reporter.EndSteps();
  TH_RETURN_IF_ERROR(CheckState());
  if (Stopped()) return Save();
  return EndEpoch(epoch);
}

double Loop::RateOf(int64_t step) const {
  return with_.schedule.Rate(with_.options.learning_rate, step, length_.steps,
                             with_.options.warmup_steps);
}

Status Loop::Step(int64_t epoch) {
  Reporter::StepDone done{.rate = RateOf(now_.step)};
  TH_ASSIGN_OR_RETURN(
      const BatchSource::StepSize size,
      with_.source.BeginStep(epoch, length_.StepInEpoch(now_.step)));
  if (now_.loss_scale.has_value()) {
    done.loss_scale = now_.loss_scale->scale;
    with_.session.ScaleLoss(static_cast<float>(done.loss_scale));
  }
  with_.session.BeginStep(static_cast<float>(done.rate),
                          static_cast<float>(RateOf(now_.step + 1)));
  TH_ASSIGN_OR_RETURN(done.loss, Differentiate(size));
  if (now_.rewiring.has_value()) {
    const auto due = with_.rewirer.Due(now_.step, length_, *now_.rewiring);
    if (due.has_value()) with_.session.RewireAtUpdate(*due);
  }
  TH_RETURN_IF_ERROR(Update(done.loss, &done));
  ++now_.step;
  for (size_t i = 0; i < step_metrics_.size(); ++i) {
    now_.metrics[i].epoch_sum += step_metrics_[i];
  }
  const int64_t count = size.counts[kBatchAxis.index()];
  now_.epoch_count += count;
  with_.reporter.Step(done, now_.step, count);
  Rewired();
  return Status::Ok();
}

void Loop::Rewired() {
  const std::optional<RewireResult>& done = with_.session.rewired();
  if (!done.has_value()) return;
  with_.rewirer.Done(*done, &*now_.rewiring);
  with_.reporter.Rewired(*done, now_.step, with_.session);
}

Status Loop::Update(double loss, Reporter::StepDone* done) {
  const bool has_loss = std::isfinite(loss);
  // Where the loss is no number its gradients are none either, but a network
  // may stop them: such a step is skipped in any case.
  const StepOutcome outcome =
      has_loss ? with_.session.Update(static_cast<float>(done->rate),
                                      static_cast<float>(RateOf(now_.step + 1)))
               : with_.session.Skip();
  done->skipped = outcome == StepOutcome::kSkipped;
  if (has_loss) {
    now_.epoch_loss += loss;
    now_.final_train_loss = loss;
  }
  if (!now_.loss_scale.has_value()) return Status::Ok();
  if (!has_loss) ++now_.loss_scale->without_loss;
  if (!done->skipped) {
    with_.scaler.Applied(&*now_.loss_scale);
    return Status::Ok();
  }
  const Status lower = with_.scaler.Skipped(&*now_.loss_scale);
  return lower.ok() ? lower : Diverged(lower.message());
}

Result<double> Loop::Differentiate(const BatchSource::StepSize& size) {
  const Plan& plan = with_.session.plan();
  if (size.parts > 1 && plan.microbatches() == 1) {
    return Status::Failed(fmt::format(
        "the source '{}' has {} parts for a step that was planned as one; "
        "plan with PlanOptions::microbatch",
        with_.source.name(), size.parts));
  }
  std::ranges::fill(step_metrics_, 0.0);
  const auto total = static_cast<double>(size.counts[kBatchAxis.index()]);
  double loss = 0;
  AxisCounts done = {};
  for (int64_t part = 0; part < size.parts; ++part) {
    TH_ASSIGN_OR_RETURN(const AxisCounts counts,
                        with_.source.Fill(part, feeds_));
    TH_ASSIGN_OR_RETURN(const AxisParts parts,
                        PartsOf(with_.source, plan, counts, done, size.counts));
    const PassResult result = with_.session.Differentiate(parts);
    // Nothing of the step is applied before the update.
    if (!std::isfinite(result.loss) && !now_.loss_scale.has_value()) {
      return Diverged("the loss of the next step is no number");
    }
    const auto count = static_cast<double>(counts[kBatchAxis.index()]);
    loss += static_cast<double>(result.loss) * (count / total);
    AddMetrics(result, step_metrics_);
    for (size_t i = 0; i < done.size(); ++i) done[i] += counts[i];
  }
  const std::span<const Axis> axes = plan.graph().axes();
  for (size_t i = 0; i < axes.size(); ++i) {
    if (done[i] == size.counts[i]) continue;
    return OtherThanNamed(with_.source, axes[i], done[i], size.counts[i]);
  }
  return loss;
}

Status Loop::EndEpoch(int64_t epoch) {
  // Before the test, which may take long: a resumed run begins with it.
  TH_RETURN_IF_ERROR(Save());
  TestResult test{.loss = kNoNumber};
  if (with_.source.TestParts() > 0) {
    auto tested = test_.All(with_.options.stop);
    if (!tested.ok()) return Stopped() ? Save() : tested.status();
    test = *std::move(tested);
    if (!std::isfinite(test.loss)) {
      return Diverged("the loss on the test split is no number");
    }
    Note(test);
  }
  const EpochEvent event = with_.reporter.EventOf(epoch, now_, test);
  now_.epoch_loss = 0;
  now_.epoch_count = 0;
  if (now_.loss_scale.has_value()) now_.loss_scale->without_loss = 0;
  for (Progress::Metric& metric : now_.metrics) metric.epoch_sum = 0;
  TH_RETURN_IF_ERROR(with_.saver.KeepEpoch(with_.session, now_, event.epoch));
  TH_RETURN_IF_ERROR(Save());
  with_.reporter.Epoch(event);
  return Status::Ok();
}

void Loop::Note(const TestResult& test) {
  const std::vector<MetricName> names = MetricsOf(with_.session.plan());
  for (size_t i = 0; i < now_.metrics.size(); ++i) {
    Progress::Metric& metric = now_.metrics[i];
    metric.last_test = test.metrics[i];
    if (IsBetter(names[i].is_share, test.metrics[i], metric.best_test)) {
      metric.best_test = test.metrics[i];
    }
  }
}

Status Loop::CheckState() {
  const Status finite =
      CheckFinite(with_.session, TrainingState(with_.session.plan()));
  if (!finite.ok()) return Diverged(finite.message());
  if (with_.source.TestParts() < 1) return Status::Ok();
  TH_ASSIGN_OR_RETURN(const TestResult result, test_.Part(0));
  if (std::isfinite(result.loss)) return Status::Ok();
  return Diverged("the loss on the first part of the test split is no number");
}

Status Loop::Diverged(const std::string& what) const {
  return Status::Failed(fmt::format(
      "training has diverged: after step {}, {}.{} A lower "
      "TrainOptions::learning_rate (it is {:g}) or a "
      "TrainOptions::warmup_steps usually helps",
      now_.step, what, with_.saver.KeptText(), with_.options.learning_rate));
}

}  // namespace thimble::train
