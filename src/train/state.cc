// SPDX-License-Identifier: Apache-2.0
#include "train/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/check.h"

namespace thimble::train {

StateValues::StateValues(const Plan& plan, Part part) : plan_(&plan) {
  if (part == Part::kModel) return;
  state_ends_.reserve(plan.parameters().size());
  uint32_t end = 0;
  for (const ParameterState& parameter : plan.parameters()) {
    end += static_cast<uint32_t>(parameter.state.size());
    state_ends_.push_back(end);
  }
}

ValueId StateValues::operator[](size_t i) const {
  const auto parameters = plan_->parameters();
  if (i < parameters.size()) return parameters[i].parameter;
  i -= parameters.size();
  const auto statistics = plan_->statistics();
  if (i < statistics.size()) return statistics[i];
  i -= statistics.size();
  const auto of = std::ranges::upper_bound(state_ends_, i);
  const auto& state =
      parameters[static_cast<size_t>(of - state_ends_.begin())].state;
  return state[state.size() - (*of - i)];
}

TensorInfo TensorInfoOf(const Value& value) {
  TensorInfo info{value.name, "F32", {}};
  for (size_t axis = 0; axis < value.spec.shape.rank(); ++axis) {
    info.shape.push_back(static_cast<uint64_t>(value.spec.shape[axis]));
  }
  return info;
}

Status SaveValues(const FileDescriptor& folder, const std::string& name,
                  Session& session, const StateValues& values,
                  const SafetensorsMetadata& metadata) {
  TH_ASSIGN_OR_RETURN(AtomicFileWriter writer,
                      AtomicFileWriter::CreateIn(folder, name));
  const Graph& graph = session.plan().graph();
  const auto tensor = [&](size_t i) {
    return TensorView{TensorInfoOf(graph.value(values[i])),
                      session.Bytes(values[i])};
  };
  return WriteSafetensors(std::move(writer), {values.size(), tensor, metadata},
                          Seal::kSha256);
}

Status CheckFinite(Session& session, const StateValues& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const std::span<const float> floats = session.Floats(values[i]);
    if (std::ranges::all_of(floats, [](float x) { return std::isfinite(x); })) {
      continue;
    }
    return Status::Failed(
        fmt::format("'{}' is no longer finite",
                    session.plan().graph().value(values[i]).name));
  }
  return Status::Ok();
}

Status ReadTensorInto(const SafetensorsReader& reader, Session& session,
                      ValueId value) {
  const Value& want = session.plan().graph().value(value);
  const TensorInfo info = TensorInfoOf(want);
  const SafetensorsReader::Tensor* have = reader.Find(info.name);
  if (have == nullptr || have->info.dtype != info.dtype ||
      have->info.shape != info.shape) {
    return Status::Failed(fmt::format(
        "{}: tensor '{}' is missing or not F32 {}; the file belongs to another "
        "model",
        reader.path(), info.name, want.spec.shape.ToString()));
  }
  return reader.ReadTensor(info.name, session.Bytes(value));
}

}  // namespace thimble::train
