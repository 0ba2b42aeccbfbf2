// SPDX-License-Identifier: Apache-2.0
#include "train/saving.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "base/check.h"
#include "train/sparse_facts.h"

namespace thimble::train {
namespace {

// The file at `path`, under its own name.
Status CopyInto(const FileDescriptor& folder, const std::string& path) {
  constexpr size_t kPieceOfFile = size_t{64} << 10;
  const std::string name = path.substr(path.rfind('/') + 1);
  // The data may be in the folder itself.
  if (IsSameFile(path, PlaceOf(folder) + "/" + name)) return Status::Ok();
  TH_ASSIGN_OR_RETURN(const FileDescriptor from, OpenForReading(path));
  TH_ASSIGN_OR_RETURN(AtomicFileWriter to,
                      AtomicFileWriter::CreateIn(folder, name));
  std::vector<std::byte> piece(kPieceOfFile);
  for (;;) {
    TH_ASSIGN_OR_RETURN(const size_t bytes,
                        ReadSomeAt(from, piece, to.bytes_written()));
    if (bytes == 0) return to.Commit();
    TH_RETURN_IF_ERROR(to.Write(std::span(piece).first(bytes)));
  }
}

}  // namespace

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
  saver.keep_epochs_ = options.keep_epochs;
  saver.made_ = std::make_unique<MadeFolders>();
  TH_ASSIGN_OR_RETURN(saver.folder_,
                      PrepareOutDir(saver.dir_, saver.made_.get()));
  TH_RETURN_IF_ERROR(CheckOutFolder(options));
  if (options.resume) {
    TH_ASSIGN_OR_RETURN(saver.goes_on_, HoldsRunToResume(saver.dir_));
  }
  return saver;
}

void Saver::Describe(Settings settings, WeightsFacts facts,
                     std::vector<std::string> files) {
  settings_ = std::move(settings);
  facts_ = std::move(facts);
  files_ = std::move(files);
}

Status Saver::BeginFolder() {
  if (has_begun_) return Status::Ok();
  has_begun_ = true;
  for (const std::string& path : files_) {
    TH_RETURN_IF_ERROR(CopyInto(folder_, path));
  }
  return goes_on_ ? Status::Ok() : RemoveEpochsBut(0);
}

Status Saver::RemoveEpochsBut(int64_t epoch) {
  const std::string dir = PlaceOf(folder_);
  TH_ASSIGN_OR_RETURN(const std::vector<int64_t> kept, KeptEpochs(dir));
  for (int64_t other : kept) {
    if (other > epoch - keep_epochs_ && other <= epoch) continue;
    unlinkat(folder_.get(), EpochName(other).c_str(), 0);
  }
  return Status::Ok();
}

Status Saver::KeepEpoch(Session& session, const Progress& progress,
                        int64_t epoch) {
  if (!has_folder() || keep_epochs_ == 0) return Status::Ok();
  TH_RETURN_IF_ERROR(BeginFolder());
  TH_RETURN_IF_ERROR(
      SaveWeights(folder_, session, facts_, progress.step, EpochName(epoch)));
  return RemoveEpochsBut(epoch);
}

Result<Progress> Saver::Load(Session& session) {
  TH_ASSIGN_OR_RETURN(Progress progress,
                      LoadCheckpoint(dir_, session, settings_));
  kept_step_ = progress.step;
  return progress;
}

Status Saver::Save(Session& session, const Progress& progress) {
  if (!has_folder()) return Status::Ok();
  TH_RETURN_IF_ERROR(BeginFolder());
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
