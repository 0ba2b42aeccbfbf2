// SPDX-License-Identifier: Apache-2.0
#include "train/out_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "thimble/number.h"

namespace thimble::train {
namespace {

constexpr char kEpochBegin[] = "epoch-";
constexpr char kEpochEnd[] = ".safetensors";

}  // namespace

std::string WeightsPath(const std::string& dir) {
  return dir + "/" + kWeightsName;
}

std::string CheckpointPath(const std::string& dir) {
  return dir + "/" + kCheckpointName;
}

std::string EpochName(int64_t epoch) {
  return fmt::format("{}{}{}", kEpochBegin, epoch, kEpochEnd);
}

std::string EpochPath(const std::string& dir, int64_t epoch) {
  return dir + "/" + EpochName(epoch);
}

Result<std::vector<int64_t>> KeptEpochs(const std::string& dir) {
  DIR* entries = opendir(dir.c_str());
  if (entries == nullptr) {
    return Status::Failed(
        fmt::format("{} cannot be read: {}", dir, std::strerror(errno)));
  }
  std::vector<int64_t> epochs;
  while (const dirent* entry = readdir(entries)) {
    const std::string_view name = entry->d_name;
    const std::string_view begin = kEpochBegin, end = kEpochEnd;
    if (!name.starts_with(begin) || !name.ends_with(end) ||
        name.size() < begin.size() + end.size()) {
      continue;
    }
    const auto number = ParseWhole(
        name.substr(begin.size(), name.size() - begin.size() - end.size()));
    const bool is_one = number.has_value() && *number < INT64_MAX &&
                        name == EpochName(static_cast<int64_t>(*number));
    if (is_one) epochs.push_back(static_cast<int64_t>(*number));
  }
  closedir(entries);
  std::ranges::sort(epochs);
  return epochs;
}

MadeFolders::~MadeFolders() {
  // Innermost first; nothing happens to those that hold something.
  for (auto path = paths_.rbegin(); path != paths_.rend(); ++path) {
    rmdir(path->c_str());
  }
}

Result<FileDescriptor> PrepareOutDir(const std::string& dir,
                                     MadeFolders* made) {
  TH_RETURN_IF_ERROR(MakeDirs(dir, made == nullptr ? nullptr : made->paths()));
  TH_ASSIGN_OR_RETURN(FileDescriptor folder, LockFolder(dir));
  RemoveStaleTemporaries(WeightsPath(dir));
  RemoveStaleTemporaries(CheckpointPath(dir));
  // The temporary file is removed again by the writer's destructor.
  TH_RETURN_IF_ERROR(AtomicFileWriter::CreateIn(folder, kWeightsName).status());
  return folder;
}

Status CheckCanBeMade(const std::string& dir) {
  std::string above = dir;
  for (bool is_there = false; !is_there;) {
    TH_ASSIGN_OR_RETURN(is_there, IsThere(above));
    if (!is_there) above = FolderOf(above);
  }
  const bool is_folder = IsFolder(above);
  if (is_folder && access(above.c_str(), W_OK) == 0) return Status::Ok();
  return Status::Failed(
      fmt::format("cannot make folder {}: {} is {}", dir, above,
                  is_folder ? "not writable" : "there and is not a folder"));
}

Status CheckHoldsNoRun(const std::string& dir) {
  TH_ASSIGN_OR_RETURN(const bool has_checkpoint, IsThere(CheckpointPath(dir)));
  if (has_checkpoint) {
    return Status::Failed(
        fmt::format("{} holds a run already; TrainOptions::resume goes on with "
                    "it, TrainOptions::overwrite starts anew and replaces it",
                    dir));
  }
  TH_ASSIGN_OR_RETURN(const bool has_weights, IsThere(WeightsPath(dir)));
  if (has_weights) {
    return Status::Failed(fmt::format(
        "{} holds weights already, and no checkpoint that TrainOptions::resume "
        "could go on from; TrainOptions::overwrite starts anew and replaces "
        "them",
        dir));
  }
  return Status::Ok();
}

Result<bool> HoldsRunToResume(const std::string& dir) {
  TH_ASSIGN_OR_RETURN(const bool has_checkpoint, IsThere(CheckpointPath(dir)));
  if (has_checkpoint) return true;
  TH_ASSIGN_OR_RETURN(const bool has_weights, IsThere(WeightsPath(dir)));
  if (!has_weights) return false;
  return Status::Failed(fmt::format(
      "{} holds weights but no {} to go on from; restore that file, choose "
      "another folder, or start anew and replace the weights with "
      "TrainOptions::overwrite",
      dir, kCheckpointName));
}

Status CheckIsNoOutFile(const std::string& dir, const std::string& log_path) {
  for (const std::string& file : {WeightsPath(dir), CheckpointPath(dir)}) {
    if (AtomicFileWriter::Touches(file, log_path)) {
      return Status::Usage(
          fmt::format("the log {} would be written over {}, which "
                      "TrainOptions::out_dir needs; choose another name",
                      log_path, file));
    }
  }
  return Status::Ok();
}

}  // namespace thimble::train
