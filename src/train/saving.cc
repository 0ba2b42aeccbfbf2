// SPDX-License-Identifier: Apache-2.0
#include "train/saving.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "train/sparse_facts.h"

namespace thimble::train {

Status CheckOutFolder(const TrainOptions& options) {
  const std::string& dir = options.out_dir;
  if (dir.empty()) return Status::Ok();
  if (!IsFolder(dir)) return CheckCanBeMade(dir);
  TH_RETURN_IF_ERROR(CheckIsNoOutFile(dir, options.log_path));
  if (options.resume) return HoldsRunToResume(dir).status();
  return options.overwrite ? Status::Ok() : CheckHoldsNoRun(dir);
}

Result<Saver> Saver::Open(const TrainOptions& options) {
  Saver saver;
  if (options.out_dir.empty()) return saver;
  saver.dir_ = options.out_dir;
  saver.made_ = std::make_unique<MadeFolders>();
  TH_ASSIGN_OR_RETURN(saver.folder_,
                      PrepareOutDir(saver.dir_, saver.made_.get()));
  TH_RETURN_IF_ERROR(CheckOutFolder(options));
  if (options.resume) {
    TH_ASSIGN_OR_RETURN(saver.goes_on_, HoldsRunToResume(saver.dir_));
  }
  return saver;
}

void Saver::Describe(Settings settings, WeightsFacts facts) {
  settings_ = std::move(settings);
  facts_ = std::move(facts);
}

Result<Progress> Saver::Load(Session& session) {
  TH_ASSIGN_OR_RETURN(Progress progress,
                      LoadCheckpoint(dir_, session, settings_));
  kept_step_ = progress.step;
  return progress;
}

Status Saver::Save(Session& session, const Progress& progress) {
  if (!has_folder()) return Status::Ok();
  // In this order: weights without a checkpoint could not be gone on with,
  // whereas a resumed run writes missing or older weights again.
  TH_RETURN_IF_ERROR(SaveCheckpoint(folder_, session, progress, settings_));
  TH_RETURN_IF_ERROR(SaveWeights(folder_, session, facts_, progress.step));
  kept_step_ = progress.step;
  saved_ = true;
  return Status::Ok();
}

Status Saver::Finish(Session& session, const Progress& progress) {
  if (!goes_on_ || saved_ || progress.step == 0) return Status::Ok();
  return SaveWeights(folder_, session, facts_, progress.step);
}

std::string Saver::KeptText() const {
  if (kept_step_ < 0) return "";
  return fmt::format(
      " The weights and the checkpoint of step {} in {} are kept.", kept_step_,
      PlaceOf(folder_));
}

std::string Saver::weights_path() const {
  return has_folder() ? WeightsPath(PlaceOf(folder_)) : "";
}

Settings SettingsOf(const Plan& plan, Settings source,
                    const TrainOptions& options, int64_t steps,
                    std::string_view target) {
  Settings settings = {
      {kModelName, plan.model()},
      {"batch", std::to_string(plan.batch())},
      {"microbatch", std::to_string(plan.microbatch())},
      {"ghost batch", std::to_string(plan.options().ghost_batch)},
      {"seed", std::to_string(options.seed)},
      {"learning rate", fmt::format("{}", options.learning_rate)},
      {"schedule", options.schedule},
      {"warm-up", std::to_string(options.warmup_steps)},
      {"steps", std::to_string(steps)},
      {"optimizer", std::string(plan.optimizer().name())},
      {kModelLayers, plan.model_fingerprint()},
      {"fuse", plan.options().fuse ? "on" : "off"},
      {"SIMD target", std::string(target)}};
  // Files from before there was a choice name neither.
  if (!plan.options().precision.is_f32()) {
    settings[kPrecision] = plan.options().precision.ToString();
  }
  settings.merge(SparseFactsOf(plan));
  // By what they mean: a default that is typed out is still the default.
  const Precision& precision = plan.options().precision;
  const std::string_view loss_scale =
      LossScaler::RuleOf(options.loss_scale, precision);
  if (loss_scale != "none") settings["loss scale"] = loss_scale;
  settings.merge(plan.optimizer().Settings());
  const auto state = settings.find("optimizer state");
  if (state != settings.end() &&
      state->second == DTypeName(precision.parameters)) {
    settings.erase(state);
  }
  for (const auto& [name, value] : plan.build_options()) {
    settings[name] = fmt::format("{}", value);
  }
  settings.merge(source);
  return settings;
}

}  // namespace thimble::train
