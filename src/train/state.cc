// SPDX-License-Identifier: Apache-2.0
#include "train/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"

namespace thimble::train {
namespace {

const char* NameInFile(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kU8:
      return "U8";
    default:
      TH_CHECK(false);  // nothing of that type goes to disk
  }
  return "";
}

// Whether all numbers of 16 bits are finite, whose exponents have these bits.
bool AllFinite16(std::span<const std::byte> bytes, uint16_t exponent) {
  for (size_t i = 0; i + 2 <= bytes.size(); i += 2) {
    uint16_t bits = 0;
    std::memcpy(&bits, &bytes[i], 2);
    if ((bits & exponent) == exponent) return false;
  }
  return true;
}

bool IsFinite(Session& session, ValueId value) {
  switch (session.plan().graph().value(value).spec.storage.dtype) {
    case DType::kF32:
      return std::ranges::all_of(session.Floats(value),
                                 [](float x) { return std::isfinite(x); });
    case DType::kF16:
      return AllFinite16(session.Bytes(value), 0x7C00);
    case DType::kBF16:
      return AllFinite16(session.Bytes(value), 0x7F80);
    default:
      return true;  // cannot hold anything else
  }
}

}  // namespace

StateValues::StateValues(const Plan& plan, Part part) {
  const auto& sparse = plan.sparse();
  const auto add = [&](ValueId v) {
    if (!plan.PoolOf(v).valid()) values_.push_back(v);
  };
  for (const ParameterState& p : plan.parameters()) add(p.parameter);
  if (sparse.has_value()) {
    values_.push_back(sparse->index);
    values_.push_back(sparse->parameters);
  }
  for (ValueId v : plan.statistics()) values_.push_back(v);
  if (part == Part::kModel) return;
  for (const ParameterState& p : plan.parameters()) {
    for (ValueId v : p.state) add(v);
  }
  if (!sparse.has_value()) return;
  for (ValueId v : sparse->state) values_.push_back(v);
}

TensorInfo TensorInfoOf(const Value& value) {
  const Storage& storage = value.spec.storage;
  TensorInfo info{value.name, NameInFile(storage.dtype), {}};
  if (storage.blocks.has_value() || storage.sparsity.has_value()) {
    // Of several parts: as it lies in memory.
    info.dtype = NameInFile(DType::kU8);
    info.shape = {value.spec.bytes()};
    return info;
  }
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
    if (IsFinite(session, values[i])) continue;
    return Status::Failed(
        fmt::format("'{}' is no longer finite",
                    session.plan().graph().value(values[i]).name));
  }
  return Status::Ok();
}

Status CheckReadIndex(Session& session, const std::string& path) {
  const auto& sparse = session.plan().sparse();
  if (!sparse.has_value()) return Status::Ok();
  const Status status =
      CheckIndex(sparse->layout, session.Bytes(sparse->index));
  if (status.ok()) return status;
  return Status::Failed(
      fmt::format("{} is damaged: {}", path, status.message()));
}

Status ReadTensorInto(const SafetensorsReader& reader, Session& session,
                      ValueId value) {
  const Value& want = session.plan().graph().value(value);
  const TensorInfo info = TensorInfoOf(want);
  const SafetensorsReader::Tensor* have = reader.Find(info.name);
  if (have == nullptr || have->info.dtype != info.dtype ||
      have->info.shape != info.shape) {
    return Status::Failed(fmt::format(
        "{}: tensor '{}' is missing or not {} {}; the file belongs to another "
        "model",
        reader.path(), info.name, info.dtype, want.spec.shape.ToString()));
  }
  return reader.ReadTensor(info.name, session.Bytes(value));
}

}  // namespace thimble::train
