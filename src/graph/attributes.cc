// SPDX-License-Identifier: Apache-2.0
#include "graph/attributes.h"

#include <fmt/format.h>

namespace thimble {

std::string AttributeText(int64_t value) { return fmt::format("{}", value); }
std::string AttributeText(double value) { return fmt::format("{}", value); }
std::string AttributeText(float value) { return fmt::format("{}", value); }

std::string AttributeText(const std::vector<float>& values) {
  std::string text = "[";
  for (const float value : values) {
    text += fmt::format("{}{}", text.size() > 1 ? ", " : "", value);
  }
  text += ']';
  return text;
}

std::string AttributeText(const Shape& shape) { return shape.ToString(); }

std::string AttributeText(const ValueSpec& spec) {
  return fmt::format("{} {}{}", spec.shape.ToString(), DTypeName(spec.dtype),
                     spec.batched ? " of a batch" : "");
}

}  // namespace thimble
