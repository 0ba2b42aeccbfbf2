// SPDX-License-Identifier: Apache-2.0
//
// dynamicconv-iwslt and dynamicconv-D-FFN-ENC-DEC: the encoder-decoder of Wu et
// al. (2019) in which dynamic convolutions stand for self-attention, with post-
// norm, as Sohoni et al. train it. Pure functions, safe from every thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "thimble/model.h"

namespace thimble::models {

struct DynamicConvModel {
  int64_t features = 512;
  int64_t hidden = 1024;  // of the feed-forward layers
  int64_t encoder_layers = 7;
  int64_t decoder_layers = 6;
};

// None where the name is of another family.
Result<std::optional<DynamicConvModel>> ParseDynamicConvName(
    const std::string& name);

// REQUIRES: what was parsed.
Result<Model> BuildDynamicConv(const std::string& name,
                               const DynamicConvModel& shape,
                               const ModelOptions& options);

// The same layers for a search of translations, see BuildTranslator.
Result<Model> BuildDynamicConvTranslator(const std::string& name,
                                         const DynamicConvModel& shape,
                                         const ModelOptions& options,
                                         const TranslatorRoom& room);

TrainingPreset DynamicConvPreset();

}  // namespace thimble::models
