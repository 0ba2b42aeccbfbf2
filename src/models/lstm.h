// SPDX-License-Identifier: Apache-2.0
//
// lstm-LAYERS-HIDDEN-STEPS: an LSTM that reads images as sequences, unrolled.
// Each image's bytes are cut into STEPS parts of equal length: 28 steps read a
// 28×28 image row by row, 784 pixel by pixel. All layers do a step before any
// does the next one. What the last layer gives at the last step goes through a
// linear layer to the classes.
//
// Parameter names: lstm{1..LAYERS}.{weight_x,weight_h,bias}, gates in the order
// input, forget, candidate, output; fc.*.
#pragma once

#include <optional>
#include <string>

#include "thimble/model.h"

namespace thimble::models {

struct LstmModelShape {
  int64_t layers = 1;
  int64_t hidden = 128;
  int64_t steps = 28;
};

// Reads "lstm-1-128-28"; nothing for names of other models, an error for
// numbers out of range.
Result<std::optional<LstmModelShape>> ParseLstmName(const std::string& name);

// Fails where the images' values cannot be cut into that many steps.
Result<Model> BuildLstm(const std::string& name, const LstmModelShape& shape,
                        const ModelOptions& options);

// Images of 28×28 where they have that many steps, else STEPS rows of 50
// values, the input of Chen et al.: enough to plan, no data set has it.
TrainingPreset LstmPreset(const LstmModelShape& shape);

}  // namespace thimble::models
