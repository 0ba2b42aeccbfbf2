// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "models/dynamic_conv.h"
#include "models/lstm.h"
#include "models/mlp_cnn.h"
#include "models/resnet.h"
#include "models/wrn.h"
#include "thimble/model.h"

namespace thimble {
namespace {

constexpr ModelName kModels[] = {
    {"mlp", "two hidden layers of 256 and 128"},
    {"cnn", "four 3x3 convolutions with batch norm, 16 to 64 channels"},
    {"wrn-D-K",
     "wide residual network of depth D = 6n+4 and width K, e.g. wrn-28-2"},
    {"resnet-D",
     "pre-activation residual network for 32x32 images: basic blocks with "
     "parameter-free shortcuts for D = 6n+2 (20, 56, 110, ...), bottlenecks "
     "with 1x1 projections for D = 9n+2 from 164 on (164, 1001, ...)"},
    {"resnet-imagenet-D",
     "the same with bottlenecks for 224x224 images of 1000 classes, D = 3n+2: "
     "50, 101, 152, 200, or any other with n/4 blocks in each stage"},
    {"lstm-LAYERS-HIDDEN-STEPS",
     "LSTM that reads each image in STEPS equal parts: lstm-1-128-28 reads "
     "28x28 images row by row, lstm-1-128-784 pixel by pixel"},
    {"dynamicconv-iwslt",
     "translation model of 7 and 6 layers of dynamic convolutions, 512 "
     "features"},
    {"dynamicconv-D-FFN-ENC-DEC",
     "the same with D features, FFN in its feed-forward layers, and ENC and "
     "DEC layers, e.g. dynamicconv-256-512-4-2"},
};

constexpr const char* kDropout = "dropout";
constexpr const char* kSource = "source_vocabulary";
constexpr const char* kTarget = "target_vocabulary";

bool IsOfText(const std::string& name) {
  const auto shape = models::ParseDynamicConvName(name);
  return shape.ok() && shape->has_value();
}

Result<Model> BuildByName(const std::string& name,
                          const ModelOptions& options) {
  TH_ASSIGN_OR_RETURN(const auto text, models::ParseDynamicConvName(name));
  if (text.has_value()) return models::BuildDynamicConv(name, *text, options);
  if (options.classes < 2) {
    return Status::Usage(fmt::format(
        "a classifier needs at least 2 classes, got {}", options.classes));
  }
  if (name == "mlp") return models::BuildMlp(options);
  if (name == "cnn") return models::BuildCnn(options);
  TH_ASSIGN_OR_RETURN(const auto wrn, models::ParseWrnName(name));
  if (wrn.has_value()) return models::BuildWrn(name, *wrn, options);
  TH_ASSIGN_OR_RETURN(const auto resnet, models::ParseResnetName(name));
  TH_ASSIGN_OR_RETURN(const auto lstm, models::ParseLstmName(name));
  if ((resnet.has_value() || lstm.has_value()) &&
      options.dropout.value_or(0) != 0) {
    return Status::Usage(fmt::format(
        "'{}' has no place for a dropout; mlp, cnn, wrn-D-K and dynamicconv-… "
        "have",
        name));
  }
  if (resnet.has_value()) return models::BuildResnet(name, *resnet, options);
  if (lstm.has_value()) return models::BuildLstm(name, *lstm, options);
  std::string known;
  for (const ModelName& model : kModels) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", model.name);
  }
  return Status::Usage(
      fmt::format("unknown model '{}'; the models are: {}", name, known));
}

}  // namespace

std::vector<ModelName> ModelNames() {
  return {std::begin(kModels), std::end(kModels)};
}

BuildOptions BuildOptionsOf(const ModelOptions& options) {
  return {{kDropout, options.dropout.value_or(0)},
          {kSource, static_cast<double>(options.source_vocabulary)},
          {kTarget, static_cast<double>(options.target_vocabulary)}};
}

void SetBuildOptions(const BuildOptions& from, ModelOptions& options) {
  for (const auto& [name, value] : from) {
    if (name == kDropout) options.dropout = value;
    if (name == kSource) options.source_vocabulary = std::llround(value);
    if (name == kTarget) options.target_vocabulary = std::llround(value);
  }
}

Result<Model> BuildModel(const std::string& name, const ModelOptions& options) {
  constexpr double kTextDropout = 0.3;
  ModelOptions set = options;
  if (!set.dropout.has_value()) set.dropout = IsOfText(name) ? kTextDropout : 0;
  TH_ASSIGN_OR_RETURN(Model model, BuildByName(name, set));
  model.build_options = BuildOptionsOf(set);
  // Of images, files have been without these.
  if (!IsOfText(name)) {
    model.build_options.erase(kSource);
    model.build_options.erase(kTarget);
  }
  return model;
}

Result<Model> BuildTranslator(const std::string& name,
                              const ModelOptions& options,
                              const TranslatorRoom& room) {
  TH_ASSIGN_OR_RETURN(const auto shape, models::ParseDynamicConvName(name));
  if (!shape.has_value()) {
    return Status::Usage(fmt::format(
        "'{}' does not translate; models that do are dynamicconv-iwslt and "
        "dynamicconv-D-FFN-ENC-DEC",
        name));
  }
  ModelOptions set = options;
  set.batch = room.target_tokens;
  set.dropout = 0;
  return models::BuildDynamicConvTranslator(name, *shape, set, room);
}

TrainingPreset PresetOf(const std::string& name) {
  TrainingPreset preset;
  if (name == "mlp") preset.learning_rate = 0.05;
  const auto wrn = models::ParseWrnName(name);
  if (wrn.ok() && wrn->has_value()) preset = models::WrnPreset(**wrn);
  const auto resnet = models::ParseResnetName(name);
  if (resnet.ok() && resnet->has_value()) {
    preset = models::ResnetPreset(**resnet);
  }
  const auto lstm = models::ParseLstmName(name);
  if (lstm.ok() && lstm->has_value()) preset = models::LstmPreset(**lstm);
  if (IsOfText(name)) preset = models::DynamicConvPreset();
  return preset;
}

}  // namespace thimble
