// SPDX-License-Identifier: Apache-2.0
//
// Layers of Network that read text.
#include <fmt/format.h>

#include "models/extents.h"
#include "thimble/network.h"

namespace thimble {

Text Network::AddText(const std::string& name, AxisId tokens) {
  if (!CheckName(name)) return {};
  for (const End& feed : feeds_) {
    if (feed.name != name) continue;
    Fail(fmt::format("two inputs are called '{}'; names must be unique", name));
    return {};
  }
  // A sentence has a token at least.
  if (!sentences_.valid()) {
    sentences_ = model_.graph.AddAxis("sentences", batch_);
  }
  const auto feed = [&](const std::string& named, AxisId axis) {
    const ValueId value = model_.graph.AddValue(
        named, {{batch_}, DType::kI32, axis}, Role::kInput);
    feeds_.push_back({named, value});
    return value;
  };
  return {feed(name, tokens), feed(name + "_ends", sentences_)};
}

Text Network::TextInput(const std::string& name) {
  if (!status_.ok()) return {};
  return AddText(name, kBatchAxis);
}

Text Network::OtherTextInput(const std::string& name) {
  if (!status_.ok()) return {};
  const size_t more = sentences_.valid() ? 1 : 2;
  if (model_.graph.axes().size() + more > kMaxAxes) {
    Fail(fmt::format(
        "'{}': a network has at most {} axes, sentences and batch included",
        name, kMaxAxes));
    return {};
  }
  return AddText(name, model_.graph.AddAxis(name + "_tokens", batch_));
}

}  // namespace thimble
