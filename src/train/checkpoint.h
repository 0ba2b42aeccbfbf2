// SPDX-License-Identifier: Apache-2.0
//
// A training checkpoint: DIR/checkpoint.safetensors holds everything that the
// next bit of a run depends on. Randomness is a function of the seed and the
// step, so besides parameters, statistics and optimizer state that is the step,
// and the settings, which must be the same when the run goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "thimble/session.h"
#include "thimble/status.h"
#include "train/loss_scale.h"
#include "train/rewirer.h"

namespace thimble::train {

// Where a run stands after `step` steps, and what it has reported so far.
struct Progress {
  int64_t step = 0;
  // Sums over the epoch that the next step belongs to.
  double epoch_loss = 0;    // of its steps
  int64_t epoch_count = 0;  // along the model's first axis
  double final_train_loss = std::numeric_limits<double>::quiet_NaN();

  struct Metric {
    double epoch_sum = 0;
    // Of the whole run.
    double best_test = std::numeric_limits<double>::quiet_NaN();
    double last_test = std::numeric_limits<double>::quiet_NaN();
  };
  std::vector<Metric> metrics;  // in the model's order
  // Not saved where there was none.
  std::optional<LossScaleState> loss_scale;
  std::optional<RewiringState> rewiring;  // the same
};

// Name and value of everything that decides bits: model, data, seed, rates, …
using Settings = std::map<std::string, std::string>;
// Among them: the model's name and its fingerprint, and the precision, which is
// there where it is not f32 alone.
inline constexpr const char* kModelName = "model";
inline constexpr const char* kPrecision = "precision";
inline constexpr const char* kModelLayers = "model layers";

// Metadata: the value of "format" is this and a number, the keys of settings
// begin with kSettingPrefix, and the text of kProgress with the step.
inline constexpr char kCheckpointFormats[] = "thimble-checkpoint-";
inline constexpr char kSettingPrefix[] = "setting.";
inline constexpr char kProgress[] = "progress";

// Streamed from the arena, sealed, replaced atomically.
Status SaveCheckpoint(const FileDescriptor& folder, Session& session,
                      const Progress& progress, const Settings& settings);

// Fails, saying which, where a setting differs from what the checkpoint was
// made with, and where the file is damaged. The session's state is undefined
// then.
Result<Progress> LoadCheckpoint(const std::string& dir, Session& session,
                                const Settings& settings);

// A new run, of a model with this many metrics.
Progress NoProgress(size_t metrics);

}  // namespace thimble::train
