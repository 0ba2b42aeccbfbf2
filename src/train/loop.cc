// SPDX-License-Identifier: Apache-2.0
#include "train/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/rng.h"
#include "data/augment.h"
#include "train/evaluation.h"
#include "train/feed.h"
#include "train/state.h"

namespace thimble::train {

bool Loop::Stopped() const {
  return with_.options.stop != nullptr &&
         with_.options.stop->load(std::memory_order_relaxed);
}

Status Loop::Run() {
  while ((now_.step < length_.steps || now_.epoch_images > 0) && !Stopped()) {
    TH_RETURN_IF_ERROR(Epoch());
  }
  return Status::Ok();
}

Status Loop::Epoch() {
  with_.reporter.BeginEpoch();
  const int64_t epoch =
      length_.EpochOf(now_.step - (now_.epoch_images > 0 ? 1 : 0));
  const int64_t end = length_.EndOf(epoch);
  const KeyedPermutation order(
      static_cast<uint64_t>(with_.data.size(Split::kTrain)),
      RandomStream(with_.options.seed, static_cast<uint64_t>(epoch),
                   kOrderStream)
          .Key());
  while (now_.step < end && !Stopped()) {
    TH_RETURN_IF_ERROR(Step(epoch, order));
  }
  with_.reporter.EndSteps();
  TH_RETURN_IF_ERROR(CheckState());
  if (Stopped()) return Save();
  const auto steps = static_cast<double>(end - length_.FirstOf(epoch));
  EpochEvent event;
  event.epoch = epoch + 1;
  event.train_loss = now_.epoch_loss / steps;
  event.train_accuracy = static_cast<double>(now_.epoch_correct) /
                         static_cast<double>(now_.epoch_images);
  return EndEpoch(event);
}

Status Loop::Step(int64_t epoch, const KeyedPermutation& order) {
  const Plan& plan = with_.session.plan();
  const int64_t first = length_.StepInEpoch(now_.step) * plan.batch();
  const int64_t count =
      std::min(plan.batch(), with_.data.size(Split::kTrain) - first);
  const double rate =
      with_.schedule.Rate(with_.options.learning_rate, now_.step, length_.steps,
                          with_.options.warmup_steps);
  double loss = 0;
  int64_t correct = 0;
  for (int64_t done = 0; done < count; done += plan.microbatch()) {
    const Microbatch part{.first = done,
                          .count = std::min(plan.microbatch(), count - done),
                          .images = count};
    TH_RETURN_IF_ERROR(FeedTraining(epoch, order, first + done, part.count));
    const BatchResult result = with_.session.Differentiate(part);
    // Nothing of the step is applied before the update.
    if (!std::isfinite(result.loss)) {
      return Diverged("the loss of the next step is no number");
    }
    loss += static_cast<double>(result.loss) *
            (static_cast<double>(part.count) / static_cast<double>(count));
    correct += result.correct;
  }
  with_.session.Update(static_cast<float>(rate));
  ++now_.step;
  now_.epoch_loss += loss;
  now_.epoch_correct += correct;
  now_.epoch_images += count;
  now_.final_train_loss = loss;
  with_.reporter.Step(now_.step, loss, rate, count);
  return Status::Ok();
}

Status Loop::FeedTraining(int64_t epoch, const KeyedPermutation& order,
                          int64_t first, int64_t count) {
  return Feed(
      with_.data, Split::kTrain, first, count,
      [&order](int64_t i) {
        return static_cast<int64_t>(order(static_cast<uint64_t>(i)));
      },
      [this, epoch](int64_t record, std::span<uint8_t> image) {
        if (augment_ == Augment::kNone) return;
        ApplyCropFlip(DrawCropFlip(with_.options.seed,
                                   static_cast<uint64_t>(epoch), record),
                      with_.data.spec(), image);
      },
      with_.session.train_images(), with_.session.train_labels());
}

Status Loop::EndEpoch(EpochEvent event) {
  // Before the test, which may take long: a resumed run begins with it.
  TH_RETURN_IF_ERROR(Save());
  auto test = Test(with_.session, with_.data, with_.options.stop);
  if (!test.ok()) return Stopped() ? Save() : test.status();
  if (!std::isfinite(test->loss)) {
    return Diverged("the loss on the test images is no number");
  }
  event.test_loss = test->loss;
  event.test_accuracy = test->accuracy;
  event.seconds = with_.reporter.SecondsOfEpoch();
  now_.test_accuracy = test->accuracy;
  if (!(now_.best_test_accuracy >= test->accuracy)) {
    now_.best_test_accuracy = test->accuracy;
  }
  now_.epoch_loss = 0;
  now_.epoch_correct = 0;
  now_.epoch_images = 0;
  TH_RETURN_IF_ERROR(Save());
  with_.reporter.Epoch(event);
  return Status::Ok();
}

Status Loop::CheckState() {
  const Status finite =
      CheckFinite(with_.session, TrainingState(with_.session.plan()));
  if (!finite.ok()) return Diverged(finite.message());
  TH_ASSIGN_OR_RETURN(const BatchResult result,
                      TestPart(with_.session, with_.data, /*first=*/0));
  if (std::isfinite(result.loss)) return Status::Ok();
  return Diverged("the loss on the first test images is no number");
}

Status Loop::Diverged(const std::string& what) const {
  return Status::Failed(fmt::format(
      "training has diverged: after step {}, {}.{} A lower "
      "TrainOptions::learning_rate (it is {:g}) or a "
      "TrainOptions::warmup_steps usually helps",
      now_.step, what, with_.saver.KeptText(), with_.options.learning_rate));
}

}  // namespace thimble::train
