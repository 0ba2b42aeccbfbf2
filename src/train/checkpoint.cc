// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/files.h"
#include "store/safetensors.h"
#include "train/ends.h"
#include "train/out_folder.h"
#include "train/state.h"

namespace thimble::train {
namespace {

constexpr const char* kFormat = "thimble-checkpoint-2";
constexpr const char* kLossScale = "loss scale";
constexpr const char* kRewiring = "rewirings so far";

// Numbers separated by blanks, written so that they come back to the bit.
class ProgressText {
 public:
  explicit ProgressText(std::string text = {}) : text_(std::move(text)) {}

  void Put(int64_t n) { text_ += fmt::format("{} ", n); }
  void Put(double x) { text_ += fmt::format("{:a} ", x); }
  // Of what are counts in most cases.
  void PutSum(double x) { text_ += fmt::format("{:.17g} ", x); }
  std::string Text() const { return text_.substr(0, text_.size() - 1); }

  // The next number; remembers where there was none.
  void Get(int64_t* n) {
    char* end = nullptr;
    *n = std::strtoll(At(), &end, 10);
    GoTo(end);
  }
  void Get(double* x) {
    char* end = nullptr;
    *x = std::strtod(At(), &end);
    GoTo(end);
  }
  bool all_read() const { return is_good_ && at_ == text_.size(); }

 private:
  const char* At() const { return text_.c_str() + at_; }
  void GoTo(const char* end) {
    is_good_ = is_good_ && end != At();
    at_ = static_cast<size_t>(end - text_.c_str());
  }

  std::string text_;
  size_t at_ = 0;
  bool is_good_ = true;
};

std::string FormatProgress(const Progress& p) {
  ProgressText text;
  text.Put(p.step);
  text.Put(p.epoch_loss);
  for (const Progress::Metric& m : p.metrics) text.PutSum(m.epoch_sum);
  text.Put(p.epoch_count);
  for (const Progress::Metric& m : p.metrics) {
    text.Put(m.best_test);
    text.Put(m.last_test);
  }
  text.Put(p.final_train_loss);
  return text.Text();
}

// `progress` has as many metrics as the model.
bool ParseProgress(const std::string& from, Progress* p) {
  ProgressText text(from);
  text.Get(&p->step);
  text.Get(&p->epoch_loss);
  for (Progress::Metric& m : p->metrics) text.Get(&m.epoch_sum);
  text.Get(&p->epoch_count);
  for (Progress::Metric& m : p->metrics) {
    text.Get(&m.best_test);
    text.Get(&m.last_test);
  }
  text.Get(&p->final_train_loss);
  return text.all_read() && p->step >= 0;
}

std::string FormatLossScale(const LossScaleState& state) {
  ProgressText text;
  text.Put(state.scale);
  text.Put(state.clean);
  text.Put(state.skipped);
  text.Put(state.without_loss);
  return text.Text();
}

bool ParseLossScale(const std::string& from, int64_t steps,
                    LossScaleState* state) {
  ProgressText text(from);
  text.Get(&state->scale);
  text.Get(&state->clean);
  text.Get(&state->skipped);
  text.Get(&state->without_loss);
  return text.all_read() && state->scale > 0 && state->clean >= 0 &&
         state->skipped >= 0 && state->skipped <= steps;
}

std::string FormatRewiring(const RewiringState& state) {
  ProgressText text;
  text.Put(state.threshold);
  text.Put(state.rewirings);
  return text.Text();
}

bool ParseRewiring(const std::string& from, RewiringState* state) {
  ProgressText text(from);
  text.Get(&state->threshold);
  text.Get(&state->rewirings);
  return text.all_read() && state->threshold >= 0 && state->rewirings >= 0;
}

// What a setting was that is told only where it is something else.
std::string_view Untold(const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kUntold[] = {
      {kPrecision, "f32"},
      {"loss scale", "none"},
      {"rounding", "nearest"},
      {"optimizer state", "as the weight is"}};
  for (const auto& [setting, meaning] : kUntold) {
    if (name == setting) return meaning;
  }
  return "(nothing)";
}

Status CheckSetting(const std::string& path, const SafetensorsMetadata& meta,
                    const std::string& name, const std::string& value) {
  const auto found = meta.find(kSettingPrefix + name);
  const std::string had = found == meta.end() ? "" : found->second;
  if (had == value) return Status::Ok();
  // Digits of a fingerprint would say nothing.
  if (name == kModelLayers && !had.empty()) {
    return Status::Failed(fmt::format(
        "{}: the model's layers differ; this run was made with a model of "
        "another structure or other strides, rates or epsilons; "
        "TrainOptions::resume goes on with the same model only",
        path));
  }
  return Status::Failed(
      fmt::format("{} was made with {} = {}, now it is {}; "
                  "TrainOptions::resume goes on with the same settings only",
                  path, name, had.empty() ? Untold(name) : had,
                  value.empty() ? Untold(name) : value));
}

// What either side has, since settings may be told where they are no default.
// The model comes first, then the precision: others, such as the learning rate
// and the loss scale, follow from them. How many blocks a rewiring prunes
// follows from the pattern, and comes last.
Status CheckSettings(const std::string& path, const SafetensorsMetadata& meta,
                     const Settings& now) {
  Settings settings = now;
  for (const auto& [key, value] : meta) {
    if (key.starts_with(kSettingPrefix)) {
      settings.emplace(key.substr(std::string_view(kSettingPrefix).size()), "");
    }
  }
  for (const char* first : {kModelName, kPrecision}) {
    const auto found = settings.find(first);
    if (found == settings.end()) continue;
    TH_RETURN_IF_ERROR(CheckSetting(path, meta, found->first, found->second));
  }
  for (const bool of_rewiring : {false, true}) {
    for (const auto& [name, value] : settings) {
      if (name.starts_with(Rewirer::kSettings) != of_rewiring) continue;
      TH_RETURN_IF_ERROR(CheckSetting(path, meta, name, value));
    }
  }
  return Status::Ok();
}

std::string FormatOf(const SafetensorsMetadata& meta) {
  const auto found = meta.find("format");
  return found == meta.end() ? std::string() : found->second;
}

// Fails where a checkpoint says that it is of another version.
Status CheckVersion(const std::string& path, const std::string& format) {
  if (format == kFormat || !format.starts_with(kCheckpointFormats))
    return Status::Ok();
  return Status::Failed(fmt::format(
      "{} was written by another version of Thimble ({}; this one reads {}), "
      "which alone can go on with it; TrainOptions::overwrite in place of "
      "TrainOptions::resume starts anew and replaces it",
      path, format, kFormat));
}

// The first version wrote no seal. A file of this one that has lost it is
// damaged.
Result<SealedSafetensors> OpenCheckpoint(const std::string& path) {
  auto file = SealedSafetensors::Open(path);
  if (file.ok()) {
    TH_RETURN_IF_ERROR(CheckVersion(path, FormatOf(file->metadata())));
    return file;
  }
  const auto unsealed = SafetensorsReader::Open(path);
  if (unsealed.ok() && !unsealed->metadata().contains(kSafetensorsSeal)) {
    TH_RETURN_IF_ERROR(CheckVersion(path, FormatOf(unsealed->metadata())));
  }
  return file;
}

}  // namespace

Progress NoProgress(size_t metrics) {
  Progress progress;
  progress.metrics.resize(metrics);
  return progress;
}

Status SaveCheckpoint(const FileDescriptor& folder, Session& session,
                      const Progress& progress, const Settings& settings) {
  SafetensorsMetadata meta = {{"format", kFormat},
                              {kProgress, FormatProgress(progress)}};
  if (progress.loss_scale.has_value()) {
    meta[kLossScale] = FormatLossScale(*progress.loss_scale);
  }
  if (progress.rewiring.has_value()) {
    meta[kRewiring] = FormatRewiring(*progress.rewiring);
  }
  for (const auto& [name, value] : settings)
    meta[kSettingPrefix + name] = value;
  return SaveValues(folder, kCheckpointName, session,
                    TrainingState(session.plan()), meta);
}

Result<Progress> LoadCheckpoint(const std::string& dir, Session& session,
                                const Settings& settings) {
  const std::string path = CheckpointPath(dir);
  TH_ASSIGN_OR_RETURN(const SealedSafetensors file, OpenCheckpoint(path));
  const SafetensorsMetadata& meta = file.metadata();
  const auto state = meta.find(kProgress);
  Progress progress = NoProgress(MetricsOf(session.plan()).size());
  const auto scale = meta.find(kLossScale);
  if (scale != meta.end()) progress.loss_scale.emplace();
  const auto rewiring = meta.find(kRewiring);
  if (rewiring != meta.end()) progress.rewiring.emplace();
  if (FormatOf(meta) != kFormat || state == meta.end() ||
      !ParseProgress(state->second, &progress) ||
      (scale != meta.end() &&
       !ParseLossScale(scale->second, progress.step, &*progress.loss_scale)) ||
      (rewiring != meta.end() &&
       !ParseRewiring(rewiring->second, &*progress.rewiring))) {
    return Status::Failed(fmt::format(
        "{} is no training checkpoint; remove it to start anew", path));
  }
  TH_RETURN_IF_ERROR(CheckSettings(path, meta, settings));
  const StateValues values = TrainingState(session.plan());
  const Graph& graph = session.plan().graph();
  TH_RETURN_IF_ERROR(file.ReadTensors(values.size(), [&](size_t i) {
    return SealedSafetensors::Target{TensorInfoOf(graph.value(values[i])),
                                     session.Bytes(values[i])};
  }));
  TH_RETURN_IF_ERROR(CheckReadIndex(session, path));
  return progress;
}

}  // namespace thimble::train
