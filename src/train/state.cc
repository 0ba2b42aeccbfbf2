// SPDX-License-Identifier: Apache-2.0
#include "train/state.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/check.h"

namespace thimble::train {

std::vector<ValueId> ModelState(const Plan& plan) {
  std::vector<ValueId> values;
  for (const ParameterState& p : plan.parameters()) {
    values.push_back(p.parameter);
  }
  values.insert(values.end(), plan.statistics().begin(),
                plan.statistics().end());
  return values;
}

std::vector<ValueId> TrainingState(const Plan& plan) {
  std::vector<ValueId> values = ModelState(plan);
  for (const ParameterState& p : plan.parameters()) {
    if (p.velocity.valid()) values.push_back(p.velocity);
  }
  return values;
}

TensorInfo TensorInfoOf(const Value& value) {
  TensorInfo info{value.name, "F32", {}};
  for (size_t axis = 0; axis < value.spec.shape.rank(); ++axis) {
    info.shape.push_back(static_cast<uint64_t>(value.spec.shape[axis]));
  }
  return info;
}

Status SaveValues(const FileDescriptor& folder, const std::string& name,
                  Session& session, std::span<const ValueId> values,
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

Status CheckFinite(Session& session, std::span<const ValueId> values) {
  for (ValueId v : values) {
    for (float x : session.Floats(v)) {
      if (std::isfinite(x)) continue;
      return Status::Failed(fmt::format("'{}' is no longer finite",
                                        session.plan().graph().value(v).name));
    }
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
