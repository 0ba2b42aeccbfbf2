// SPDX-License-Identifier: Apache-2.0
#include "train/image_facts.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "thimble/number.h"

namespace thimble::train {
namespace {

std::string JoinFloats(std::span<const float> values) {
  return fmt::format("{:.9g}", fmt::join(values, ","));
}

// Numbers separated by commas.
bool ParseFloats(std::string_view text, std::vector<float>* values) {
  while (true) {
    const size_t comma = text.find(',');
    const bool is_negative = text.starts_with('-');
    const auto value =
        ParseDecimal<float>(text.substr(0, comma).substr(is_negative ? 1 : 0));
    if (!value.has_value()) return false;
    values->push_back(is_negative ? -*value : *value);
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

bool ParseExtent(std::string_view text, int64_t* extent) {
  const auto number = ParseWhole(text);
  if (!number.has_value() || *number < 1 || *number > (1u << 24)) return false;
  *extent = static_cast<int64_t>(*number);
  return true;
}

}  // namespace

WeightsFacts ImageFacts(const ImageSpec& images, std::span<const float> mean,
                        std::span<const float> stddev) {
  return {{"channels", std::to_string(images.channels)},
          {"height", std::to_string(images.height)},
          {"width", std::to_string(images.width)},
          {"classes", std::to_string(images.classes)},
          {"mean", JoinFloats(mean)},
          {"stddev", JoinFloats(stddev)}};
}

std::optional<TrainedImages> ReadImageFacts(const WeightsFacts& facts) {
  const auto get = [&facts](const char* key) {
    const auto found = facts.find(key);
    return found == facts.end() ? std::string() : found->second;
  };
  TrainedImages images;
  int64_t classes = 0;
  if (!ParseExtent(get("channels"), &images.spec.channels) ||
      !ParseExtent(get("height"), &images.spec.height) ||
      !ParseExtent(get("width"), &images.spec.width) ||
      !ParseExtent(get("classes"), &classes) ||
      !ParseFloats(get("mean"), &images.mean) ||
      !ParseFloats(get("stddev"), &images.stddev)) {
    return std::nullopt;
  }
  images.spec.classes = static_cast<int32_t>(classes);
  return images;
}

}  // namespace thimble::train
