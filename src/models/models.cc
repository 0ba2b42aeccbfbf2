// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "models/mlp_cnn.h"
#include "thimble/model.h"

namespace thimble {
namespace {

struct Entry {
  ModelName name;
  Result<Model> (*build)(const ModelOptions&);
};

constexpr Entry kModels[] = {
    {{"mlp", "two hidden layers of 256 and 128", 0.05}, models::BuildMlp},
    {{"cnn", "four 3x3 convolutions with batch norm, 16 to 64 channels", 0.1},
     models::BuildCnn},
};

}  // namespace

std::vector<ModelName> ModelNames() {
  std::vector<ModelName> names;
  for (const Entry& entry : kModels) names.push_back(entry.name);
  return names;
}

Result<Model> BuildModel(const std::string& name, const ModelOptions& options) {
  if (options.classes < 2) {
    return Status::Usage(fmt::format(
        "a classifier needs at least 2 classes, got {}", options.classes));
  }
  std::string known;
  for (const Entry& entry : kModels) {
    if (entry.name.name == name) return entry.build(options);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name.name);
  }
  return Status::Usage(
      fmt::format("unknown model '{}'; the models are: {}", name, known));
}

}  // namespace thimble
