// SPDX-License-Identifier: Apache-2.0
//
// The JSON-lines log of a run. Lines are formatted into one buffer and written
// with one write(2); once it has grown to a step's line, steps allocate
// nothing. Keys of speed and metrics are made of the names that events carry. A
// failed write (a full disk) is remembered and ends the log, not the training.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/function_ref.h"
#include "thimble/batches.h"
#include "thimble/status.h"
#include "thimble/trainer.h"

namespace thimble::train {

class Log {
 public:
  // A log that drops everything.
  Log() = default;
  // Empties `path`, or appends to it, on a new line even where the last one was
  // cut short. A file that holds something else than a log is refused and left
  // as it is. An empty path makes a log that drops everything.
  static Result<Log> Open(const std::string& path, bool append);
  // Fails where Open would, as far as that is seen without writing.
  static Status Check(const std::string& path);

  // `plan_json` is one JSON object.
  void Start(std::string_view plan_json, std::span<const SourceFact> facts,
             uint64_t seed);
  // A run that goes on after `step` steps.
  void Resume(int64_t step);
  void Step(const StepEvent& event);
  // kept(m): blocks that sparse weight m of `count` keeps now.
  void Rewiring(const RewireResult& done, int64_t step, size_t count,
                FunctionRef<int64_t(size_t)> kept);
  // So that lines with a number for each of `count` weights allocate nothing.
  void Reserve(size_t count);
  void Epoch(const EpochEvent& event);
  void Summary(const TrainSummary& summary);

  const Status& status() const { return status_; }

 private:
  explicit Log(FileDescriptor file) : file_(std::move(file)) {}
  void WriteLine(std::string_view line);

  FileDescriptor file_;
  Status status_;
  std::string line_;              // memory to format in
  std::string axis_, speed_key_;  // of the last step
};

}  // namespace thimble::train
