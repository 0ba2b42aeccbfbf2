// SPDX-License-Identifier: Apache-2.0
#include "train/checkpoint.h"

#include <fmt/format.h>

#include <cinttypes>
#include <cstdio>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "base/sha256.h"
#include "store/safetensors.h"
#include "train/state.h"

namespace thimble::train {
namespace {

constexpr const char* kFormat = "thimble-checkpoint-1";
constexpr const char* kSetting = "setting.";

std::string HashOf(Session& session, const std::vector<ValueId>& values) {
  Sha256 hash;
  for (ValueId v : values) hash.Update(session.Bytes(v));
  return Hex(hash.Final());
}

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
    return Status::Failed(
        fmt::format("{} was made with {} = {}, now it is {}; --resume goes on "
                    "with the same "
                    "settings only",
                    path, name, had.empty() ? "(nothing)" : had, value));
  }
  return Status::Ok();
}

}  // namespace

std::string CheckpointPath(const std::string& dir) {
  return dir + "/checkpoint.safetensors";
}

bool HasCheckpoint(const std::string& dir) {
  return IsFile(CheckpointPath(dir));
}

Status SaveCheckpoint(const std::string& dir, Session& session,
                      const Progress& progress, const Settings& settings) {
  const std::vector<ValueId> values = TrainingState(session.plan());
  std::vector<TensorView> views;
  views.reserve(values.size());
  for (ValueId v : values) {
    views.push_back(
        {TensorInfoOf(session.plan().graph().value(v)), session.Bytes(v)});
  }
  SafetensorsMetadata meta = {{"format", kFormat},
                              {"progress", FormatProgress(progress)},
                              {"sha256", HashOf(session, values)}};
  for (const auto& [name, value] : settings) meta[kSetting + name] = value;
  return WriteSafetensors(CheckpointPath(dir), views, meta);
}

Result<Progress> LoadCheckpoint(const std::string& dir, Session& session,
                                const Settings& settings) {
  const std::string path = CheckpointPath(dir);
  TH_ASSIGN_OR_RETURN(const SafetensorsReader reader,
                      SafetensorsReader::Open(path));
  const SafetensorsMetadata& meta = reader.metadata();
  const auto get = [&meta](const char* key) {
    const auto found = meta.find(key);
    return found == meta.end() ? std::string() : found->second;
  };
  Progress progress;
  if (get("format") != kFormat || !ParseProgress(get("progress"), &progress)) {
    return Status::Failed(fmt::format(
        "{} is no training checkpoint; remove it to start anew", path));
  }
  TH_RETURN_IF_ERROR(CheckSettings(path, meta, settings));
  const std::vector<ValueId> values = TrainingState(session.plan());
  for (ValueId v : values) {
    TH_RETURN_IF_ERROR(ReadTensorInto(reader, session, v));
  }
  if (HashOf(session, values) != get("sha256")) {
    return Status::Failed(fmt::format(
        "{} is damaged: its checksum does not fit; remove it to start anew, or "
        "restore a copy",
        path));
  }
  return progress;
}

}  // namespace thimble::train
