// SPDX-License-Identifier: Apache-2.0
#include "thimble/weights_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/files.h"
#include "data/places.h"
#include "report/json_object.h"
#include "report/output_file.h"
#include "store/safetensors.h"
#include "thimble/number.h"
#include "train/checkpoint.h"
#include "train/mean.h"
#include "train/out_folder.h"
#include "train/stored_pool.h"
#include "train/weights.h"

namespace thimble {
namespace {

using report::JsonObject;
using train::StoredPool;
using Tensor = SafetensorsReader::Tensor;

constexpr size_t kPiece = size_t{64} << 10;

// A file, opened, with what was read of it so far.
struct OpenFile {
  SafetensorsReader reader;
  std::string format;
  bool is_weights, is_checkpoint;

  std::string prefix() const {
    return is_checkpoint ? train::kSettingPrefix : "";
  }
  std::string Get(const std::string& key) const {
    const auto found = reader.metadata().find(key);
    return found == reader.metadata().end() ? std::string() : found->second;
  }
};

Result<OpenFile> Open(const std::string& path) {
  std::string file = path;
  if (IsFolder(path)) {
    file = train::WeightsPath(path);
    TH_ASSIGN_OR_RETURN(const bool is_there, IsThere(file));
    if (!is_there) {
      return Status::Failed(
          fmt::format("{} is not there; give a file, or the folder that Train "
                      "with TrainOptions::out_dir wrote",
                      file));
    }
  }
  TH_ASSIGN_OR_RETURN(SafetensorsReader reader, SafetensorsReader::Open(file));
  if (reader.metadata().contains(kSafetensorsSeal)) {
    TH_RETURN_IF_ERROR(CheckSeal(reader.file()));
  }
  OpenFile open{std::move(reader), "", false, false};
  open.format = open.Get("format");
  open.is_weights = open.format == train::kWeightsFormat;
  open.is_checkpoint = open.format.starts_with(train::kCheckpointFormats);
  return open;
}

// Only files of ours say which weights are sparse.
Result<std::optional<StoredPool>> PoolOf(const OpenFile& open) {
  if (!open.is_weights && !open.is_checkpoint) {
    return std::optional<StoredPool>();
  }
  auto pool = StoredPool::Read(open.reader, open.prefix());
  if (pool.ok()) return pool;
  return Status::Failed(
      fmt::format("{} is damaged, or was changed: {}; use a good copy",
                  open.reader.path(), pool.status().message()));
}

StoredSparseWeights SparseOf(const StoredPool& pool) {
  const train::SparseFacts& facts = pool.facts();
  const auto of_block =
      static_cast<uint64_t>(facts.sparse.block.values()) * pool.value_bytes();
  StoredSparseWeights sparse{.nonzero = facts.sparse.nonzero,
                             .block = facts.sparse.block,
                             .index = pool.layout().codec(),
                             .type = pool.values().info.dtype,
                             .index_bytes = pool.index().bytes};
  for (size_t m = 0; m < facts.shapes.size(); ++m) {
    const Pattern pattern = pool.Of(m);
    const int64_t blocks = pattern.matrix.blocks();
    const StoredSparseWeight& weight =
        sparse.weights.emplace_back(StoredSparseWeight{
            facts.sparse.weights[m], facts.shapes[m], blocks, pattern.kept,
            static_cast<uint64_t>(pattern.kept) * of_block,
            static_cast<uint64_t>(blocks) * of_block});
    sparse.blocks += weight.blocks;
    sparse.kept += weight.kept;
    sparse.bytes += weight.bytes;
    sparse.dense_bytes += weight.dense_bytes;
  }
  return sparse;
}

// What an exported file holds: tensors as they are, or weights of the pool.
struct Exported {
  const Tensor* tensor = nullptr;  // null: weight `member`
  size_t member = 0;
};

// In the order of the file, with the weights in place of their pool.
std::vector<Exported> ContentsOf(const SafetensorsReader& reader,
                                 const std::optional<StoredPool>& pool) {
  std::vector<Exported> contents;
  for (const Tensor& tensor : reader.tensors()) {
    if (pool.has_value() && &tensor == &pool->index()) continue;
    if (!pool.has_value() || &tensor != &pool->values()) {
      contents.push_back({&tensor, 0});
      continue;
    }
    for (size_t m = 0; m < pool->facts().shapes.size(); ++m) {
      contents.push_back({nullptr, m});
    }
  }
  return contents;
}

Status StreamTensor(const FileDescriptor& file, const Tensor& tensor,
                    ByteSink sink) {
  const auto piece = std::make_unique<std::array<std::byte, kPiece>>();
  for (uint64_t at = 0; at < tensor.bytes;) {
    const auto bytes = std::span(*piece).first(
        static_cast<size_t>(std::min<uint64_t>(kPiece, tensor.bytes - at)));
    TH_RETURN_IF_ERROR(ReadFullyAt(file, bytes, tensor.begin + at));
    TH_RETURN_IF_ERROR(sink(bytes));
    at += bytes.size();
  }
  return Status::Ok();
}

// Of all tensors that are exported.
Result<uint64_t> BytesOf(const SafetensorsReader& reader,
                         const std::optional<StoredPool>& pool) {
  uint64_t bytes = 0;
  bool overflows = false;
  for (const Exported& e : ContentsOf(reader, pool)) {
    uint64_t more = 0;
    if (e.tensor != nullptr) {
      more = e.tensor->bytes;
    } else {
      TH_ASSIGN_OR_RETURN(more, TensorBytes(pool->DenseInfo(e.member)));
    }
    overflows |= __builtin_add_overflow(bytes, more, &bytes);
  }
  if (!overflows) return bytes;
  return Status::Failed(fmt::format(
      "the weights of {} overflow 64 bits of bytes", reader.path()));
}

// Whether the file may be written there.
Status CheckPlace(const std::string& from, const std::string& to,
                  const ExportOptions& options) {
  TH_ASSIGN_OR_RETURN(const bool is_there, IsThere(to));
  if (!is_there) return Status::Ok();
  if (IsSameFile(from, to)) {
    return Status::Usage(
        fmt::format("{} is the file that is read; choose another name", to));
  }
  const std::string name = train::kCheckpointName;
  if (to == name || to.ends_with("/" + name)) {
    return Status::Usage(fmt::format(
        "{} is a run's checkpoint by its name; choose another name", to));
  }
  if (options.overwrite) return Status::Ok();
  return Status::Failed(
      fmt::format("{} is there already; choose another name, or replace it "
                  "with ExportOptions::overwrite",
                  to));
}

// "[1,2]"
template <typename Numbers>
std::string JsonList(const Numbers& numbers) {
  return fmt::format("[{}]", fmt::join(numbers, ","));
}

std::string SparseJson(const StoredSparseWeights& sparse) {
  JsonObject json;
  json.Add("nonzero", sparse.nonzero);
  json.Add("pattern",
           fmt::format("{}x{}", sparse.block.outputs, sparse.block.inputs));
  json.Add("type", sparse.type);
  json.Add("index", IndexCodecName(sparse.index));
  json.Add("index_bytes", sparse.index_bytes);
  json.Add("blocks", sparse.blocks);
  json.Add("kept_blocks", sparse.kept);
  json.Add("bytes", sparse.bytes);
  json.Add("dense_bytes", sparse.dense_bytes);
  std::vector<std::string> weights;
  for (const StoredSparseWeight& weight : sparse.weights) {
    std::vector<int64_t> shape;
    for (size_t axis = 0; axis < weight.shape.rank(); ++axis) {
      shape.push_back(weight.shape[axis]);
    }
    JsonObject one;
    one.Add("name", weight.name);
    one.AddRaw("shape", JsonList(shape));
    one.Add("blocks", weight.blocks);
    one.Add("kept_blocks", weight.kept);
    one.Add("density", weight.density());
    one.Add("bytes", weight.bytes);
    one.Add("dense_bytes", weight.dense_bytes);
    weights.push_back(one.Text());
  }
  json.AddRaw("weights", JsonList(weights));
  return json.Text();
}

Result<ExportSummary> ExportMean(const std::string& from, const std::string& to,
                                 const ExportOptions& options) {
  TH_ASSIGN_OR_RETURN(const std::vector<std::string> paths,
                      train::LastEpochs(from, options.average));
  TH_ASSIGN_OR_RETURN(const train::WeightsMean mean,
                      train::WeightsMean::Open(paths));
  for (const std::string& path : paths) {
    TH_RETURN_IF_ERROR(CheckPlace(path, to, options));
  }
  ExportSummary summary{.made_dense = mean.members()};
  for (size_t i = 0; i < mean.size(); ++i) {
    TH_ASSIGN_OR_RETURN(const uint64_t bytes, TensorBytes(mean.info(i)));
    summary.tensor_bytes += bytes;
  }
  TH_RETURN_IF_ERROR(CheckRoom(FolderOf(to), summary.tensor_bytes));
  TH_ASSIGN_OR_RETURN(AtomicFileWriter writer, report::CreateOutputFile(to));
  TH_RETURN_IF_ERROR(StreamSafetensors(
      std::move(writer),
      {mean.size(), [&](size_t i) { return mean.info(i); },
       [&](size_t i, ByteSink sink) { return mean.Stream(i, sink); },
       mean.metadata()},
      Seal::kSha256));
  return summary;
}

}  // namespace

Result<WeightsFile> InspectFile(const std::string& path) {
  TH_ASSIGN_OR_RETURN(const OpenFile open, Open(path));
  TH_ASSIGN_OR_RETURN(const std::optional<StoredPool> pool, PoolOf(open));
  TH_ASSIGN_OR_RETURN(const FileStamp stamp, StampOf(open.reader.file()));
  WeightsFile file{.path = open.reader.path(),
                   .format = open.format,
                   .model = open.Get(open.prefix() + train::kModelName),
                   .sealed = open.reader.metadata().contains(kSafetensorsSeal),
                   .file_bytes = stamp.bytes};
  // A checkpoint's progress begins with its step.
  const std::string steps =
      open.Get(open.is_checkpoint ? train::kProgress : "steps");
  file.steps = ParseWhole(std::string_view(steps).substr(0, steps.find(' ')));
  for (const Tensor& tensor : open.reader.tensors()) {
    file.tensors.push_back(
        {tensor.info.name, tensor.info.dtype, tensor.info.shape, tensor.bytes});
    file.tensor_bytes += tensor.bytes;
  }
  if (pool.has_value()) file.sparse = SparseOf(*pool);
  return file;
}

std::string WeightsFileJson(const WeightsFile& file) {
  JsonObject json;
  json.Add("path", file.path);
  json.Add("format", file.format);
  json.Add("model", file.model);
  if (file.steps.has_value()) {
    json.Add("steps", *file.steps);
  } else {
    json.AddNull("steps");
  }
  json.Add("sealed", file.sealed);
  json.Add("file_bytes", file.file_bytes);
  json.Add("tensor_bytes", file.tensor_bytes);
  std::vector<std::string> tensors;
  for (const StoredTensor& tensor : file.tensors) {
    JsonObject one;
    one.Add("name", tensor.name);
    one.Add("type", tensor.type);
    one.AddRaw("shape", JsonList(tensor.shape));
    one.Add("bytes", tensor.bytes);
    tensors.push_back(one.Text());
  }
  json.AddRaw("tensors", JsonList(tensors));
  if (file.sparse.has_value()) {
    json.AddRaw("sparse", SparseJson(*file.sparse));
  } else {
    json.AddNull("sparse");
  }
  return json.Text();
}

Result<ExportSummary> ExportDense(const std::string& from,
                                  const std::string& to,
                                  const ExportOptions& options) {
  if (options.average > 0) return ExportMean(from, to, options);
  TH_ASSIGN_OR_RETURN(const OpenFile open, Open(from));
  const SafetensorsReader& reader = open.reader;
  if (!open.is_weights) {
    return Status::Failed(fmt::format(
        "{} is {}; give the weights that Train with TrainOptions::out_dir "
        "wrote",
        reader.path(),
        open.is_checkpoint ? "a checkpoint" : "of another program"));
  }
  TH_ASSIGN_OR_RETURN(const std::optional<StoredPool> pool, PoolOf(open));
  TH_RETURN_IF_ERROR(CheckPlace(reader.path(), to, options));
  TH_ASSIGN_OR_RETURN(const uint64_t bytes, BytesOf(reader, pool));
  TH_RETURN_IF_ERROR(CheckRoom(FolderOf(to), bytes));
  SafetensorsMetadata metadata = reader.metadata();
  metadata.erase(kSafetensorsSeal);  // a new one is written
  // Over the tensors in the order of a plan, which only the model tells.
  metadata.erase(train::kWeightsChecksum);
  train::EraseSparseFacts(&metadata);
  const std::vector<Exported> contents = ContentsOf(reader, pool);
  const auto info = [&](size_t i) {
    const Exported& e = contents[i];
    return e.tensor != nullptr ? e.tensor->info : pool->DenseInfo(e.member);
  };
  const auto stream = [&](size_t i, ByteSink sink) {
    const Exported& e = contents[i];
    return e.tensor != nullptr ? StreamTensor(reader.file(), *e.tensor, sink)
                               : pool->StreamDense(e.member, sink);
  };
  TH_ASSIGN_OR_RETURN(AtomicFileWriter writer, report::CreateOutputFile(to));
  TH_RETURN_IF_ERROR(StreamSafetensors(
      std::move(writer), {contents.size(), info, stream, metadata},
      Seal::kSha256));
  return ExportSummary{bytes,
                       pool.has_value() ? pool->facts().shapes.size() : 0};
}

}  // namespace thimble
