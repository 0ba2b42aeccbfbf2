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

StateValues::StateValues(const Plan& plan, Part part)
    : plan_(&plan), parameters_(plan.parameters().size()) {
  const auto& sparse = plan.sparse();
  if (sparse.has_value()) {
    parameters_ -= sparse->members.size();
    pools_ = 2;
  }
  if (part == Part::kModel) return;
  for (const ParameterState& p : plan.parameters()) {
    for (ValueId v : p.state) state_ += plan.PoolOf(v).valid() ? 0 : 1;
  }
  if (sparse.has_value()) pool_state_ = sparse->state.size();
}

ValueId StateValues::operator[](size_t i) const {
  const auto& sparse = plan_->sparse();
  if (i < parameters_) {
    if (sparse.has_value()) {
      for (const uint32_t member : sparse->members) i += member <= i ? 1 : 0;
    }
    return plan_->parameters()[i].parameter;
  }
  i -= parameters_;
  if (i < pools_) return i == 0 ? sparse->index : sparse->parameters;
  i -= pools_;
  const auto statistics = plan_->statistics();
  if (i < statistics.size()) return statistics[i];
  i -= statistics.size();
  if (i < state_) return StateAt(i);
  i -= state_;
  TH_CHECK(i < pool_state_);
  return sparse->state[i];
}

// Some parameters have more than others: scales of moments in 16 bits.
ValueId StateValues::StateAt(size_t i) const {
  for (const ParameterState& p : plan_->parameters()) {
    for (ValueId v : p.state) {
      if (plan_->PoolOf(v).valid()) continue;
      if (i-- == 0) return v;
    }
  }
  TH_CHECK(false);
  return {};
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
  Status status = CheckIndex(sparse->layout, session.Bytes(sparse->index));
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
