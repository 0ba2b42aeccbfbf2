// SPDX-License-Identifier: Apache-2.0
#include "thimble/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "graph/op.h"

namespace thimble {

const char* RoleName(Role role) {
  switch (role) {
    case Role::kInput:
      return "input";
    case Role::kParameter:
      return "parameter";
    case Role::kGradient:
      return "gradient";
    case Role::kOptimizerState:
      return "optimizer";
    case Role::kStatistic:
      return "statistic";
    case Role::kActivation:
      return "activation";
    case Role::kActivationGradient:
      return "activation-gradient";
    case Role::kWorkspace:
      return "workspace";
  }
  return "?";
}

Graph::Graph(std::vector<Axis> axes) : axes_(std::move(axes)) {
  TH_CHECK(axes_.size() <= kMaxAxes);
}

AxisId Graph::AddAxis(std::string name, int64_t capacity) {
  TH_CHECK(axes_.size() < kMaxAxes);
  axes_.push_back({std::move(name), capacity});
  return AxisId{static_cast<uint8_t>(axes_.size() - 1)};
}

ValueId Graph::AddValue(std::string name, const ValueSpec& spec, Role role,
                        Init init) {
  values_.push_back({std::move(name), spec, role, init, OpId{}, 0});
  return ValueId{static_cast<uint32_t>(values_.size() - 1)};
}

Result<std::vector<ValueId>> Graph::AddOp(std::string name,
                                          std::shared_ptr<const OpDef> def,
                                          std::vector<ValueId> inputs,
                                          Role role) {
  std::vector<ValueSpec> specs;
  for (ValueId input : inputs) {
    TH_CHECK(input.i < values_.size());
    specs.push_back(values_[input.i].spec);
  }
  auto inferred = def->Infer(specs);
  if (!inferred.ok()) {
    return Status::Usage(fmt::format("{} '{}': {}", def->name(), name,
                                     inferred.status().message()));
  }
  const OpId id{static_cast<uint32_t>(ops_.size())};
  Op op{std::move(name), std::move(def), std::move(inputs), {}};
  for (size_t k = 0; k < inferred->size(); ++k) {
    const ValueId output =
        AddValue(k == 0 ? op.name : fmt::format("{}.{}", op.name, k),
                 (*inferred)[k], role);
    values_[output.i].producer = id;
    op.outputs.push_back(output);
  }
  ops_.push_back(op);
  return op.outputs;
}

std::vector<ValueSpec> Graph::InputSpecs(const Op& op) const {
  std::vector<ValueSpec> specs;
  for (ValueId id : op.inputs) specs.push_back(value(id).spec);
  return specs;
}

std::vector<ValueSpec> Graph::OutputSpecs(const Op& op) const {
  std::vector<ValueSpec> specs;
  for (ValueId id : op.outputs) specs.push_back(value(id).spec);
  return specs;
}

int64_t Graph::ParameterCount() const {
  int64_t count = 0;
  for (const Value& v : values_) {
    if (v.role == Role::kParameter) count += v.spec.shape.elements();
  }
  return count;
}

std::string Graph::ToText() const {
  std::string text;
  const auto list = [this](const std::vector<ValueId>& ids) {
    std::string out;
    for (ValueId id : ids) {
      const Value& v = value(id);
      out += fmt::format("{}{} {} {}", out.empty() ? "" : ", ", v.name,
                         v.spec.shape.ToString(), v.spec.storage.ToString());
    }
    return out;
  };
  for (const Op& op : ops_) {
    text += fmt::format("{} = {}({}) -> {}\n", op.name, op.def->name(),
                        list(op.inputs), list(op.outputs));
  }
  return text;
}

ForwardResult OpDef::Forward(ForwardContext& context) const {
  return {context.emit.Emit(context.name, shared_from_this(),
                            {context.inputs.begin(), context.inputs.end()},
                            Role::kActivation),
          {}};
}

void OpDef::Gradient(GradientContext& context) const {
  (void)context;
  TH_CHECK(false && "this op has no gradient");
}

int64_t OpDef::Flops(std::span<const ValueSpec> inputs,
                     std::span<const ValueSpec> outputs) const {
  const int64_t in = inputs.empty() ? 0 : inputs[0].kept();
  const int64_t out = outputs.empty() ? 0 : outputs[0].kept();
  return std::max(in, out);
}

int64_t OpDef::RecomputeFlops(std::span<const ValueSpec> inputs,
                              std::span<const ValueSpec> outputs) const {
  (void)inputs;
  (void)outputs;
  return 0;
}

void OpDef::Run(const BoundOp&, const RunContext&) const {
  TH_CHECK(false && "op is not executable");
}

Workspace OpDef::Scratch(std::span<const ValueSpec> inputs,
                         std::span<const ValueSpec> outputs) const {
  (void)inputs;
  (void)outputs;
  return {};
}

}  // namespace thimble
