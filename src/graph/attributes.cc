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

std::string AttributeText(const Storage& storage) {
  std::string text = DTypeName(storage.dtype);
  if (const auto& blocks = storage.blocks; blocks.has_value()) {
    text += fmt::format(" in blocks of {} with {}", blocks->values,
                        DTypeName(blocks->scale));
  }
  if (const auto& sparsity = storage.sparsity; sparsity.has_value()) {
    text += fmt::format(" keeps {} blocks of {} by {} as member {}",
                        sparsity->kept, sparsity->block.outputs,
                        sparsity->block.inputs, sparsity->member);
  }
  return text;
}

std::string AttributeText(const PoolLayout& layout) {
  std::string text = fmt::format("{} blocks of {} by {}, {}, of", layout.kept(),
                                 layout.block().outputs, layout.block().inputs,
                                 IndexCodecName(layout.codec()));
  for (size_t m = 0; m < layout.size(); ++m) {
    text += fmt::format(" {} x {}", layout.matrix(m).rows,
                        layout.matrix(m).columns);
  }
  return text;
}

std::string AttributeText(Rounding rounding) { return RoundingName(rounding); }

std::string AttributeText(AxisId axis) {
  return axis.valid() ? fmt::format("axis {}", axis.index()) : "none";
}

std::string AttributeText(const ValueSpec& spec) {
  return fmt::format("{} {} along {}", spec.shape.ToString(),
                     AttributeText(spec.storage), AttributeText(spec.axis));
}

}  // namespace thimble
