// SPDX-License-Identifier: Apache-2.0
//
// Progress of a training run: on a terminal one live line per epoch, elsewhere
// a plain line when an epoch is done. Steps are formatted into a fixed buffer
// and allocate nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "thimble/trainer.h"

namespace thimble::cli {

class Progress final : public TrainObserver {
 public:
  // Writes to `fd`; `live` says whether that is a terminal, whose line is
  // renewed at most once per `refresh`.
  Progress(int fd, bool live, uint64_t arena_bytes,
           std::chrono::milliseconds refresh = std::chrono::milliseconds(100));

  void OnStep(const StepEvent& event) override;
  void OnEpoch(const EpochEvent& event) override;
  // Ends a live line that was left open.
  void Close();

 private:
  int fd_;
  bool live_;
  bool open_ = false;  // a live line is on the screen
  std::string arena_;  // "206.78 MB"
  std::chrono::milliseconds refresh_;
  // The highest test of the first metric so far.
  double best_ = kNoNumber;
  bool best_is_share_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace thimble::cli
