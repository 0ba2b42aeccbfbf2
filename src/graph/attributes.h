// SPDX-License-Identifier: Apache-2.0
//
// What an op's attributes are as text (OpDef::Attributes): "stride 2, padding
// 1". Numbers are written so that different ones differ. Pure functions.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "thimble/graph.h"
#include "thimble/rounding.h"
#include "thimble/shape.h"
#include "thimble/sparsity.h"

namespace thimble {

std::string AttributeText(int64_t value);
std::string AttributeText(double value);
std::string AttributeText(float value);
std::string AttributeText(const std::vector<float>& values);
std::string AttributeText(const Shape& shape);
std::string AttributeText(const Storage& storage);
std::string AttributeText(const PoolLayout& layout);
std::string AttributeText(Rounding rounding);
std::string AttributeText(AxisId axis);
std::string AttributeText(const ValueSpec& spec);
// Not of what would become a bool.
std::string AttributeText(std::same_as<bool> auto value) {
  return value ? "yes" : "no";
}

// "name text" of names and values in turn, with commas between.
inline std::string ListAttributes() { return {}; }
template <typename T, typename... More>
std::string ListAttributes(std::string_view name, const T& value,
                           const More&... more) {
  std::string text(name);
  text += ' ';
  text += AttributeText(value);
  if (sizeof...(more) > 0) {
    text += ", ";
    text += ListAttributes(more...);
  }
  return text;
}

}  // namespace thimble
