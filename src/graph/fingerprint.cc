// SPDX-License-Identifier: Apache-2.0
#include "graph/fingerprint.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "graph/attributes.h"
#include "graph/op.h"

namespace thimble {
namespace {

constexpr size_t kDigits = 16;

// With its length in front, so that no text can pass for two.
void AddText(std::string_view part, std::string& text) {
  fmt::format_to(std::back_inserter(text), "{}:{} ", part.size(), part);
}

void AddIds(const std::vector<ValueId>& ids, std::string& text) {
  for (ValueId id : ids) {
    fmt::format_to(std::back_inserter(text), "{} ", id.i);
  }
  text += '/';
}

std::string ValueText(const Value& value) {
  std::string text;
  AddText(value.name, text);
  const ValueSpec& spec = value.spec;
  AddText(AttributeText(spec.storage), text);
  AddText(AttributeText(spec.axis), text);
  AddText(RoleName(value.role), text);
  for (size_t k = spec.axis.valid() ? 1 : 0; k < spec.shape.rank(); ++k) {
    fmt::format_to(std::back_inserter(text), "{} ", spec.shape[k]);
  }
  fmt::format_to(std::back_inserter(text), "/{} {}\n",
                 static_cast<int>(value.init.kind), value.init.value);
  return text;
}

std::string OpText(const Op& op) {
  std::string text;
  AddText(op.name, text);
  AddText(op.def->name(), text);
  AddText(op.def->Attributes(), text);
  AddIds(op.inputs, text);
  AddIds(op.outputs, text);
  text += '\n';
  return text;
}

}  // namespace

std::string Fingerprint(const Graph& graph) {
  Sha256 sha;
  std::string axes;
  for (const Axis& axis : graph.axes()) AddText(axis.name, axes);
  sha.Update(axes);
  for (const Value& value : graph.values()) sha.Update(ValueText(value));
  for (const Op& op : graph.ops()) sha.Update(OpText(op));
  return Hex(sha.Final()).substr(0, kDigits);
}

}  // namespace thimble
