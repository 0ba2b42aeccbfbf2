// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint.h"

#include <fmt/format.h>

#include <cinttypes>
#include <cstdio>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "store/safetensors.h"
#include "train/out_folder.h"
#include "train/state.h"

namespace thimble::train {
namespace {

constexpr const char* kFormats = "thimble-checkpoint-";  // and a number
constexpr const char* kFormat = "thimble-checkpoint-2";
constexpr const char* kSetting = "setting.";

// Doubles as hexadecimal, so that they come back to the bit.
std::string FormatProgress(const Progress& p) {
  char text[256];
  std::snprintf(text, sizeof(text),
                "%" PRId64 " %a %" PRId64 " %" PRId64 " %a %a %a", p.step,
                p.epoch_loss, p.epoch_correct, p.epoch_images,
                p.best_test_accuracy, p.test_accuracy, p.final_train_loss);
  return text;
}

bool ParseProgress(const std::string& text, Progress* p) {
  return std::sscanf(text.c_str(),
                     "%" SCNd64 " %la %" SCNd64 " %" SCNd64 " %la %la %la",
                     &p->step, &p->epoch_loss, &p->epoch_correct,
                     &p->epoch_images, &p->best_test_accuracy,
                     &p->test_accuracy, &p->final_train_loss) == 7 &&
         p->step >= 0;
}

Status CheckSettings(const std::string& path, const SafetensorsMetadata& meta,
                     const Settings& settings) {
  for (const auto& [name, value] : settings) {
    const auto found = meta.find(kSetting + name);
    const std::string had = found == meta.end() ? "" : found->second;
    if (had == value) continue;
    // Digits of a fingerprint would say nothing.
    if (name == kModelLayers && !had.empty()) {
      return Status::Failed(fmt::format(
          "{}: the model's layers differ; this run was made with a model of "
          "another structure or other strides, rates or epsilons; --resume "
          "goes on with the same model only",
          path));
    }
    return Status::Failed(
        fmt::format("{} was made with {} = {}, now it is {}; "
                    "TrainOptions::resume goes on with the same settings only",
                    path, name, had.empty() ? "(nothing)" : had, value));
  }
  return Status::Ok();
}

std::string FormatOf(const SafetensorsMetadata& meta) {
  const auto found = meta.find("format");
  return found == meta.end() ? std::string() : found->second;
}

// Fails where a checkpoint says that it is of another version.
Status CheckVersion(const std::string& path, const std::string& format) {
  if (format == kFormat || !format.starts_with(kFormats)) return Status::Ok();
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

Status SaveCheckpoint(const FileDescriptor& folder, Session& session,
                      const Progress& progress, const Settings& settings) {
  SafetensorsMetadata meta = {{"format", kFormat},
                              {"progress", FormatProgress(progress)}};
  for (const auto& [name, value] : settings) meta[kSetting + name] = value;
  return SaveValues(folder, kCheckpointName, session,
                    TrainingState(session.plan()), meta);
}

Result<Progress> LoadCheckpoint(const std::string& dir, Session& session,
                                const Settings& settings) {
  const std::string path = CheckpointPath(dir);
  TH_ASSIGN_OR_RETURN(const SealedSafetensors file, OpenCheckpoint(path));
  const SafetensorsMetadata& meta = file.metadata();
  const auto state = meta.find("progress");
  Progress progress;
  if (FormatOf(meta) != kFormat || state == meta.end() ||
      !ParseProgress(state->second, &progress)) {
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
  return progress;
}

}  // namespace thimble::train
