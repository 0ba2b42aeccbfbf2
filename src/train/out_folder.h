// SPDX-License-Identifier: Apache-2.0
//
// The folder that a run writes its weights and checkpoint to. It is held open
// and locked while the run lasts: files are written into the folder that was
// opened, even where another one takes its name meanwhile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"
#include "thimble/status.h"

namespace thimble::train {

inline constexpr char kWeightsName[] = "weights.safetensors";
inline constexpr char kCheckpointName[] = "checkpoint.safetensors";

// What an epoch's weights are kept as: DIR/epoch-12.safetensors.
std::string EpochName(int64_t epoch);
std::string EpochPath(const std::string& dir, int64_t epoch);
// Epochs whose weights are there, in ascending order.
Result<std::vector<int64_t>> KeptEpochs(const std::string& dir);

std::string WeightsPath(const std::string& dir);
std::string CheckpointPath(const std::string& dir);

// Folders that were made for a run. Those that are empty at its end, because it
// was refused or saved nothing, are removed again.
class MadeFolders {
 public:
  MadeFolders() = default;
  ~MadeFolders();
  MadeFolders(const MadeFolders&) = delete;
  MadeFolders& operator=(const MadeFolders&) = delete;

  std::vector<std::string>* paths() { return &paths_; }

 private:
  std::vector<std::string> paths_;  // the outermost first
};

// Makes `dir` if need be, and fails early where it cannot be written, or where
// another run writes into it: hold what is given until this one ends. Removes
// what killed runs have left half written.
Result<FileDescriptor> PrepareOutDir(const std::string& dir,
                                     MadeFolders* made = nullptr);

// Fails where `dir` is not there and cannot be made. Makes nothing.
Status CheckCanBeMade(const std::string& dir);

// Fails where a run has left weights or a checkpoint in `dir`.
Status CheckHoldsNoRun(const std::string& dir);

// Whether there is a run in `dir` to go on with: false where it holds nothing
// of one. Weights without a checkpoint are an error, since a run that starts
// anew would replace them.
Result<bool> HoldsRunToResume(const std::string& dir);

// Fails where the log at `log_path` would be a file that is written to `dir`,
// or a temporary one on the way there: each would destroy the other.
// REQUIRES: `dir` is there.
Status CheckIsNoOutFile(const std::string& dir, const std::string& log_path);

}  // namespace thimble::train
