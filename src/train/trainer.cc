// SPDX-License-Identifier: Apache-2.0
#include "thimble/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/files.h"
#include "base/permutation.h"
#include "base/rng.h"
#include "data/augment.h"
#include "planner/batch_statistics.h"
#include "thimble/model.h"
#include "thimble/report.h"
#include "thimble/rss.h"
#include "thimble/session.h"
#include "thimble/text.h"
#include "train/checkpoint.h"
#include "train/feed.h"
#include "train/learning_rate.h"
#include "train/log.h"
#include "train/out_folder.h"
#include "train/state.h"
#include "train/weights.h"

namespace thimble {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// NaN where there was nothing to measure.
double Speed(int64_t images, double seconds) {
  return images > 0 ? static_cast<double>(images) / seconds
                    : std::numeric_limits<double>::quiet_NaN();
}

Status CheckData(const Plan& plan, const Ends& ends, const Dataset& data) {
  const Shape& images = plan.graph().value(ends.feeds[0].value).spec.shape;
  const int64_t classes =
      plan.graph().value(ends.outputs[0].value).spec.shape[1];
  const ImageSpec& spec = data.spec();
  if (images[1] != spec.channels || images[2] != spec.height ||
      images[3] != spec.width || classes != spec.classes) {
    return Status::Usage(fmt::format(
        "the model takes images [{}, {}, {}] of {} classes, '{}' holds [{}, "
        "{}, {}] of {}",
        images[1], images[2], images[3], classes, data.name(), spec.channels,
        spec.height, spec.width, spec.classes));
  }
  return Status::Ok();
}

Augment AugmentOf(const TrainOptions& options, const Dataset& data) {
  return options.augment.value_or(data.usual_augment());
}

Status CheckOptions(const TrainOptions& options, const Plan& plan,
                    const Dataset& data) {
  if (options.steps < 0 || (options.steps == 0 && options.epochs < 1)) {
    return Status::Usage("nothing to do: give at least one epoch or step");
  }
  if (!(options.learning_rate > 0) || !std::isfinite(options.learning_rate)) {
    return Status::Usage(fmt::format(
        "the learning rate must be above 0, got {}", options.learning_rate));
  }
  if (options.resume && options.out_dir.empty()) {
    return Status::Usage("--resume needs --out, the folder to go on from");
  }
  if (options.overwrite && options.out_dir.empty()) {
    return Status::Usage("--overwrite needs --out, the folder to start anew");
  }
  if (options.resume && options.overwrite) {
    return Status::Usage(
        "--resume goes on with a run and --overwrite starts it anew; give one "
        "of them");
  }
  if (options.warmup_steps < 0) {
    return Status::Usage("the warm-up cannot be shorter than 0 steps");
  }
  const ImageSpec& spec = data.spec();
  if (AugmentOf(options, data) == Augment::kCropFlip &&
      (spec.height < kMinCropSide || spec.width < kMinCropSide)) {
    return Status::Usage(fmt::format(
        "images of {} x {} are too small for crop-flip, whose sides must be at "
        "least {}; use --augment none",
        spec.height, spec.width, kMinCropSide));
  }
  if (data.size(Split::kTrain) < plan.batch() && !options.keep_last) {
    return Status::Usage(
        fmt::format("'{}' has {} training images, fewer than one batch of {}; "
                    "use a smaller "
                    "--batch, or --keep-last",
                    data.name(), data.size(Split::kTrain), plan.batch()));
  }
  const int64_t last = data.size(Split::kTrain) % plan.batch();
  if (!options.keep_last || last == 0) return Status::Ok();
  return planner::CheckLastBatch(plan, last);
}

struct TestResult {
  double loss = 0;
  double accuracy = 0;
};

// `count` images of the test split, from `first` on.
Result<PassResult> TestPart(Session& session, const Dataset& data,
                            int64_t first, int64_t count) {
  TH_RETURN_IF_ERROR(train::Feed(
      data, Split::kTest, first, count, [](int64_t i) { return i; },
      [](int64_t, std::span<uint8_t>) {},
      session.EvaluateFeed<uint8_t>("images"),
      session.EvaluateFeed<int32_t>("labels")));
  return session.Evaluate(count);
}

// Every image of the test split, the last partial batch included.
Result<TestResult> Test(Session& session, const Dataset& data,
                        const std::atomic<bool>* stop) {
  const int64_t size = data.size(Split::kTest);
  const int64_t batch = session.plan().microbatch();
  double loss = 0;
  int64_t correct = 0;
  for (int64_t first = 0; first < size; first += batch) {
    if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
      return Status::Failed("stopped");
    }
    const int64_t count = std::min(batch, size - first);
    TH_ASSIGN_OR_RETURN(const PassResult result,
                        TestPart(session, data, first, count));
    loss += static_cast<double>(result.loss) * static_cast<double>(count);
    correct += static_cast<int64_t>(result.metrics[0]);
  }
  return TestResult{loss / static_cast<double>(size),
                    static_cast<double>(correct) / static_cast<double>(size)};
}

class Run {
 public:
  Run(const Plan& plan, const Dataset& data, const TrainOptions& options,
      const train::Schedule& schedule, TrainObserver* observer)
      : plan_(plan),
        data_(data),
        options_(options),
        augment_(AugmentOf(options, data)),
        schedule_(schedule),
        observer_(observer) {
    const int64_t size = data.size(Split::kTrain);
    steps_per_epoch_ = options.keep_last
                           ? (size + plan.batch() - 1) / plan.batch()
                           : size / plan.batch();
    steps_ =
        options.steps > 0 ? options.steps : options.epochs * steps_per_epoch_;
  }

  // `folder` is out_dir, open and locked, and `goes_on` says that it holds a
  // run to go on with.
  Result<TrainSummary> Go(FileDescriptor folder, bool goes_on) {
    folder_ = std::move(folder);
    if (!options_.out_dir.empty()) {
      TH_ASSIGN_OR_RETURN(fingerprint_, data_.Fingerprint());
    }
    summary_.arena_bytes = plan_.arena_bytes();
    ReturnFreeHeap();
    summary_.rss_base_bytes = CurrentRssBytes();
    ResetPeakRss();
    TH_ASSIGN_OR_RETURN(session_, Session::Create(plan_, {options_.poison}));
    TH_RETURN_IF_ERROR(Start(goes_on));
    while ((now_.step < steps_ || now_.epoch_images > 0) && !Stopped()) {
      TH_RETURN_IF_ERROR(Epoch());
    }
    return Finish();
  }

 private:
  bool Stopped() const {
    return options_.stop != nullptr &&
           options_.stop->load(std::memory_order_relaxed);
  }

  Status Start(bool goes_on) {
    if (goes_on) {
      TH_ASSIGN_OR_RETURN(
          now_, train::LoadCheckpoint(options_.out_dir, *session_, Settings()));
      session_->GoOnAfter(options_.seed, static_cast<uint64_t>(now_.step));
      summary_.resumed_step = now_.step;
      kept_step_ = now_.step;
    } else {
      session_->Initialize(options_.seed);
    }
    // Not before: an old log is emptied by a run that can start only.
    TH_ASSIGN_OR_RETURN(log_, train::Log::Open(options_.log_path, goes_on));
    if (goes_on) {
      log_.Resume(now_.step);
    } else {
      log_.Start(PlanJson(plan_, std::nullopt), data_, augment_, options_.seed);
    }
    return Status::Ok();
  }

  // Everything that decides bits. Threads, budget, and what shares bytes do
  // not.
  train::Settings Settings() const {
    train::Settings settings = {
        {"model", plan_.model()},
        {"batch", std::to_string(plan_.batch())},
        {"microbatch", std::to_string(plan_.microbatch())},
        {"ghost batch", std::to_string(plan_.options().ghost_batch)},
        {"data", Printable(data_.name())},
        {"training images", std::to_string(data_.size(Split::kTrain))},
        {"data fingerprint", fingerprint_},
        {"augment", AugmentName(augment_)},
        {"seed", std::to_string(options_.seed)},
        {"learning rate", fmt::format("{}", options_.learning_rate)},
        {"schedule", options_.schedule},
        {"warm-up", std::to_string(options_.warmup_steps)},
        {"steps", std::to_string(steps_)},
        {"keep-last", options_.keep_last ? "yes" : "no"},
        {"optimizer", std::string(plan_.optimizer().name())},
        {train::kModelLayers, plan_.model_fingerprint()},
        {"fuse", plan_.options().fuse ? "on" : "off"},
        {"SIMD target", std::string(session_->target())}};
    settings.merge(plan_.optimizer().Settings());
    for (const auto& [name, value] : plan_.build_options()) {
      settings[name] = fmt::format("{}", value);
    }
    return settings;
  }

  // Trains what is left of an epoch, then tests. After a resume it may begin in
  // the middle, or with nothing left but the test.
  Status Epoch() {
    const Clock::time_point start = Clock::now();
    const int64_t begin = now_.step;
    const int64_t epoch =
        (begin - (now_.epoch_images > 0 ? 1 : 0)) / steps_per_epoch_;
    const int64_t end = std::min(steps_, (epoch + 1) * steps_per_epoch_);
    const KeyedPermutation order(
        static_cast<uint64_t>(data_.size(Split::kTrain)),
        RandomStream(options_.seed, static_cast<uint64_t>(epoch), kOrderStream)
            .Key());
    int64_t images = 0;
    while (now_.step < end && !Stopped()) {
      TH_RETURN_IF_ERROR(Step(epoch, order, start, &images));
    }
    const double seconds = SecondsSince(start);
    images_ += images;
    train_seconds_ += seconds;
    TH_RETURN_IF_ERROR(CheckState());
    if (Stopped()) return Save();
    const auto steps = static_cast<double>(end - epoch * steps_per_epoch_);
    EpochEvent event;
    event.epoch = epoch + 1;
    event.train_loss = now_.epoch_loss / steps;
    event.train_accuracy = static_cast<double>(now_.epoch_correct) /
                           static_cast<double>(now_.epoch_images);
    event.images_per_second = Speed(images, seconds);
    return EndEpoch(start, event);
  }

  Status Step(int64_t epoch, const KeyedPermutation& order,
              Clock::time_point start, int64_t* images) {
    const int64_t first =
        (now_.step - epoch * steps_per_epoch_) * plan_.batch();
    const int64_t count =
        std::min(plan_.batch(), data_.size(Split::kTrain) - first);
    const double rate = schedule_.Rate(options_.learning_rate, now_.step,
                                       steps_, options_.warmup_steps);
    double loss = 0;
    int64_t correct = 0;
    for (int64_t done = 0; done < count; done += plan_.microbatch()) {
      const AxisPart part{.first = done,
                          .count = std::min(plan_.microbatch(), count - done),
                          .total = count};
      TH_RETURN_IF_ERROR(FeedTraining(epoch, order, first + done, part.count));
      const PassResult result = session_->Differentiate(part);
      // Nothing of the step is applied before the update.
      if (!std::isfinite(result.loss)) {
        return Diverged("the loss of the next step is no number");
      }
      loss += static_cast<double>(result.loss) *
              (static_cast<double>(part.count) / static_cast<double>(count));
      correct += static_cast<int64_t>(result.metrics[0]);
    }
    session_->Update(static_cast<float>(rate));
    ++now_.step;
    now_.epoch_loss += loss;
    now_.epoch_correct += correct;
    now_.epoch_images += count;
    now_.final_train_loss = loss;
    *images += count;
    TellStep(epoch, loss, rate,
             static_cast<double>(*images) / SecondsSince(start));
    return Status::Ok();
  }

  // Puts `count` images of the epoch, from its `first` on, where the session
  // reads them.
  Status FeedTraining(int64_t epoch, const KeyedPermutation& order,
                      int64_t first, int64_t count) {
    return train::Feed(
        data_, Split::kTrain, first, count,
        [&order](int64_t i) {
          return static_cast<int64_t>(order(static_cast<uint64_t>(i)));
        },
        [this, epoch](int64_t record, std::span<uint8_t> image) {
          if (augment_ == Augment::kNone) return;
          ApplyCropFlip(
              DrawCropFlip(options_.seed, static_cast<uint64_t>(epoch), record),
              data_.spec(), image);
        },
        session_->TrainFeed<uint8_t>("images"),
        session_->TrainFeed<int32_t>("labels"));
  }

  void TellStep(int64_t epoch, double loss, double rate, double speed) {
    const int64_t left = (steps_ - now_.step) * plan_.batch();
    const StepEvent event{
        .epoch = epoch + 1,
        .epochs = (steps_ + steps_per_epoch_ - 1) / steps_per_epoch_,
        .step = now_.step,
        .steps = steps_,
        .step_in_epoch = now_.step - epoch * steps_per_epoch_,
        .steps_per_epoch = steps_per_epoch_,
        .loss = loss,
        .learning_rate = rate,
        .images_per_second = speed,
        .seconds_left = static_cast<double>(left) / speed};
    log_.Step(event);
    if (observer_ != nullptr) observer_->OnStep(event);
  }

  Status EndEpoch(Clock::time_point start, EpochEvent event) {
    // Before the test, which may take long: a resumed run begins with it.
    TH_RETURN_IF_ERROR(Save());
    auto test = Test(*session_, data_, options_.stop);
    if (!test.ok()) return Stopped() ? Save() : test.status();
    if (!std::isfinite(test->loss)) {
      return Diverged("the loss on the test images is no number");
    }
    event.test_loss = test->loss;
    event.test_accuracy = test->accuracy;
    event.seconds = SecondsSince(start);
    now_.test_accuracy = test->accuracy;
    if (!(now_.best_test_accuracy >= test->accuracy)) {
      now_.best_test_accuracy = test->accuracy;
    }
    now_.epoch_loss = 0;
    now_.epoch_correct = 0;
    now_.epoch_images = 0;
    TH_RETURN_IF_ERROR(Save());
    log_.Epoch(event);
    if (observer_ != nullptr) observer_->OnEpoch(event);
    return Status::Ok();
  }

  // Whether the state is worth saving: what is infinite, or makes the loss so,
  // must never replace something good.
  Status CheckState() {
    const Status finite =
        train::CheckFinite(*session_, train::TrainingState(session_->plan()));
    if (!finite.ok()) return Diverged(finite.message());
    const int64_t count =
        std::min(plan_.microbatch(), data_.size(Split::kTest));
    TH_ASSIGN_OR_RETURN(const PassResult result,
                        TestPart(*session_, data_, 0, count));
    if (std::isfinite(result.loss)) return Status::Ok();
    return Diverged("the loss on the first test images is no number");
  }

  Status SaveWeights() {
    const train::WeightsInfo info{
        plan_.model(),
        data_.spec(),
        {data_.mean().begin(), data_.mean().end()},
        {data_.stddev().begin(), data_.stddev().end()},
        plan_.build_options()};
    return train::SaveWeights(folder_, *session_, info, now_.step);
  }

  // REQUIRES: CheckState was ok.
  Status Save() {
    if (options_.out_dir.empty()) return Status::Ok();
    // In this order: weights without a checkpoint could not be gone on with,
    // whereas --resume writes missing or older weights again.
    TH_RETURN_IF_ERROR(
        train::SaveCheckpoint(folder_, *session_, now_, Settings()));
    TH_RETURN_IF_ERROR(SaveWeights());
    kept_step_ = now_.step;
    saved_ = true;
    return Status::Ok();
  }

  Status Diverged(const std::string& what) const {
    const std::string kept =
        kept_step_ >= 0
            ? fmt::format(
                  " The weights and the checkpoint of step {} in {} are "
                  "kept.",
                  kept_step_, PlaceOf(folder_))
            : std::string();
    return Status::Failed(fmt::format(
        "training has diverged: after step {}, {}.{} A lower --lr (it is {:g}) "
        "or a --warmup usually helps",
        now_.step, what, kept, options_.learning_rate));
  }

  Result<TrainSummary> Finish() {
    // A resumed run that found nothing left to do has only read its checkpoint;
    // the weights that it reports may have been removed, or be of another step.
    if (summary_.resumed_step > 0 && !saved_) {
      TH_RETURN_IF_ERROR(SaveWeights());
    }
    summary_.stopped = Stopped();
    summary_.steps = now_.step;
    summary_.best_test_accuracy = now_.best_test_accuracy;
    summary_.test_accuracy = now_.test_accuracy;
    summary_.final_train_loss = now_.final_train_loss;
    summary_.images_per_second = Speed(images_, train_seconds_);
    summary_.rss_peak_bytes = PeakRssBytes();
    summary_.weights_sha256 = train::WeightsSha256(*session_);
    if (!options_.out_dir.empty()) {
      summary_.weights_path = train::WeightsPath(PlaceOf(folder_));
    }
    log_.Summary(summary_);
    summary_.log_status = log_.status();
    return summary_;
  }

  const Plan& plan_;
  const Dataset& data_;
  const TrainOptions& options_;
  Augment augment_;
  const train::Schedule& schedule_;
  TrainObserver* observer_;
  FileDescriptor folder_;
  std::string fingerprint_;  // of the data; empty without a folder
  train::Log log_;
  std::unique_ptr<Session> session_;
  int64_t steps_per_epoch_ = 0;
  int64_t steps_ = 0;
  train::Progress now_;
  int64_t images_ = 0;
  double train_seconds_ = 0;
  bool saved_ = false;      // since this process began
  int64_t kept_step_ = -1;  // of the checkpoint on disk; -1: there is none
  TrainSummary summary_;
};

}  // namespace

Result<TrainSummary> Train(const Plan& plan, const Dataset& data,
                           const TrainOptions& options,
                           TrainObserver* observer) {
  if (!plan.options().training) {
    return Status::Usage("the plan was made for evaluation only");
  }
  TH_RETURN_IF_ERROR(CheckData(plan, plan.train_ends(), data));
  TH_RETURN_IF_ERROR(CheckOptions(options, plan, data));
  TH_ASSIGN_OR_RETURN(const train::Schedule schedule,
                      train::Schedule::Parse(options.schedule));
  train::MadeFolders made;
  FileDescriptor folder;
  bool goes_on = false;
  if (!options.out_dir.empty()) {
    TH_ASSIGN_OR_RETURN(folder, train::PrepareOutDir(options.out_dir, &made));
    TH_RETURN_IF_ERROR(
        train::CheckIsNoOutFile(options.out_dir, options.log_path));
    if (options.resume) {
      TH_ASSIGN_OR_RETURN(goes_on, train::HoldsRunToResume(options.out_dir));
    } else if (!options.overwrite) {
      TH_RETURN_IF_ERROR(train::CheckHoldsNoRun(options.out_dir));
    }
  }
  return Run(plan, data, options, schedule, observer)
      .Go(std::move(folder), goes_on);
}

Result<PlanSearch> PlanEvaluation(const std::string& dir,
                                  const EvaluateOptions& options) {
  TH_ASSIGN_OR_RETURN(const train::WeightsInfo info,
                      train::ReadWeightsInfo(dir));
  ModelOptions model_options;
  model_options.batch = options.batch;
  model_options.images = {info.images.channels, info.images.height,
                          info.images.width, info.mean, info.stddev};
  model_options.classes = info.images.classes;
  SetBuildOptions(info.build_options, model_options);
  auto model = BuildModel(info.model, model_options);
  if (!model.ok()) {
    return Status::Failed(fmt::format(
        "{} holds a network called '{}', which cannot be built by name here: "
        "{}",
        train::WeightsPath(dir), info.model, model.status().message()));
  }
  PlanOptions plan_options;
  plan_options.training = false;
  plan_options.threads = options.threads;
  plan_options.budget = options.budget;
  return PlanSearch::Create(*model, plan_options);
}

Result<EvaluateSummary> Evaluate(const std::string& dir, const Plan& plan,
                                 const Dataset& data) {
  TH_RETURN_IF_ERROR(CheckData(plan, plan.evaluate_ends(), data));
  TH_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                      Session::Create(plan, {}));
  TH_RETURN_IF_ERROR(train::LoadWeights(dir, *session));
  TH_ASSIGN_OR_RETURN(const TestResult test, Test(*session, data, nullptr));
  return EvaluateSummary{
      plan.model(), plan.arena_bytes(), data.size(Split::kTest),
      test.loss,    test.accuracy,      train::WeightsSha256(*session)};
}

Result<EvaluateSummary> Evaluate(const std::string& dir, const Dataset& data,
                                 const EvaluateOptions& options) {
  TH_ASSIGN_OR_RETURN(PlanSearch search, PlanEvaluation(dir, options));
  TH_RETURN_IF_ERROR(search.CheckBudget());
  return Evaluate(dir, std::move(search).Take(), data);
}

}  // namespace thimble
