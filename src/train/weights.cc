// SPDX-License-Identifier: Apache-2.0
#include "train/weights.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/files.h"
#include "base/sha256.h"
#include "store/safetensors.h"
#include "thimble/model.h"
#include "thimble/number.h"
#include "train/out_folder.h"
#include "train/sparse_facts.h"
#include "train/state.h"

namespace thimble::train {
namespace {

// What the weights are stored in, and what the activations were. Not there:
// f32.
constexpr const char* kParameterType = "parameters";
constexpr const char* kActivationType = "activations";

// Refuses a file that carries a seal which does not fit.
Result<SafetensorsReader> OpenWeights(const std::string& path) {
  TH_ASSIGN_OR_RETURN(SafetensorsReader reader, SafetensorsReader::Open(path));
  if (!reader.metadata().contains(kSafetensorsSeal)) return reader;
  const Status seal = CheckSeal(reader.file());
  if (seal.ok()) return reader;
  return Status::Failed(fmt::format(
      "{}, or Train with TrainOptions::resume to write it again from the "
      "checkpoint. A program that changes the file must remove its metadata {} "
      "and {}",
      seal.message(), kSafetensorsSeal, kWeightsChecksum));
}

}  // namespace

Status SaveWeights(const FileDescriptor& folder, Session& session,
                   const WeightsFacts& facts, int64_t steps,
                   const std::string& file_name) {
  const Plan& plan = session.plan();
  SafetensorsMetadata metadata = {{"format", kWeightsFormat},
                                  {"model", plan.model()},
                                  {"steps", std::to_string(steps)},
                                  {kWeightsChecksum, WeightsSha256(session)}};
  for (const auto& [name, value] : plan.build_options()) {
    metadata[name] = fmt::format("{}", value);
  }
  const Precision& precision = plan.options().precision;
  if (!precision.is_f32()) {
    metadata[kParameterType] = DTypeName(precision.parameters);
    metadata[kActivationType] = DTypeName(precision.activations);
  }
  metadata.merge(SparseFactsOf(plan));
  metadata.insert(facts.begin(), facts.end());
  return SaveValues(folder, file_name, session, ModelState(plan), metadata);
}

Result<WeightsInfo> ReadWeightsInfo(const std::string& dir) {
  const std::string path = WeightsPath(dir);
  TH_ASSIGN_OR_RETURN(const bool is_there, IsThere(path));
  if (!is_there) {
    return Status::Failed(
        fmt::format("{} is not there; give the folder that Train with "
                    "TrainOptions::out_dir wrote",
                    path));
  }
  TH_ASSIGN_OR_RETURN(const SafetensorsReader reader, OpenWeights(path));
  const SafetensorsMetadata& meta = reader.metadata();
  const auto get = [&meta](const char* key) {
    const auto found = meta.find(key);
    return found == meta.end() ? std::string() : found->second;
  };
  WeightsInfo info;
  info.model = get("model");
  if (get("format") != kWeightsFormat || info.model.empty()) {
    return Status::Failed(fmt::format(
        "{} does not say which model it holds; it was not written by "
        "Train with TrainOptions::out_dir",
        path));
  }
  // Files from before there was an option do not name it, and mean its default.
  info.build_options = BuildOptionsOf({});
  for (auto& [name, value] : info.build_options) {
    value = ParseDecimal<double>(get(name.c_str())).value_or(value);
  }
  for (const auto& [key, type] :
       {std::pair(kParameterType, &info.precision.parameters),
        std::pair(kActivationType, &info.precision.activations)}) {
    const auto parsed = ParseFloatType(get(key));
    if (parsed.ok()) *type = *parsed;
  }
  const auto sparse = ReadSparseFacts(meta);
  if (!sparse.ok()) {
    return Status::Failed(
        fmt::format("{}: {}", path, sparse.status().message()));
  }
  info.sparse = sparse->sparse;
  info.facts = meta;
  return info;
}

Status LoadWeights(const std::string& dir, Session& session) {
  TH_ASSIGN_OR_RETURN(const SafetensorsReader reader,
                      OpenWeights(WeightsPath(dir)));
  const StateValues values = ModelState(session.plan());
  for (size_t i = 0; i < values.size(); ++i) {
    TH_RETURN_IF_ERROR(ReadTensorInto(reader, session, values[i]));
  }
  TH_RETURN_IF_ERROR(CheckReadIndex(session, reader.path()));
  const auto sum = reader.metadata().find(kWeightsChecksum);
  if (sum == reader.metadata().end() || sum->second == WeightsSha256(session)) {
    return Status::Ok();
  }
  return Status::Failed(fmt::format(
      "{} is damaged: its checksum does not fit its tensors; use a good copy, "
      "or Train with TrainOptions::resume to write it again from the "
      "checkpoint",
      reader.path()));
}

std::string WeightsSha256(Session& session) {
  Sha256 hash;
  const StateValues values = ModelState(session.plan());
  for (size_t i = 0; i < values.size(); ++i) {
    hash.Update(session.Bytes(values[i]));
  }
  return Hex(hash.Final());
}

}  // namespace thimble::train
