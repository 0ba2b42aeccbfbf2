// SPDX-License-Identifier: Apache-2.0
//
// The settings of which tests/golden/recorded_bits.json holds what training and
// planning give. A name stands for the same setting for ever: change none, add
// new ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "thimble/plan.h"
#include "thimble/trainer.h"

namespace thimble::testing {

enum class RecordedData {
  kGrey,    // 1×14×14: 96 images, 10 to test on
  kColour,  // 3×32×32: 10 images, 5 to test on
};

struct RecordedSetting {
  std::string name;
  std::string model;
  RecordedData data = RecordedData::kGrey;
  int64_t batch = 13;
  double dropout = 0;
  PlanOptions plan;
  TrainOptions train;  // with 0 steps nothing is trained
  ImageBatchOptions images;
  // A setting that must give the same bits; empty: none.
  std::string same_bits_as;
};

std::vector<RecordedSetting> AllRecordedSettings();

}  // namespace thimble::testing
