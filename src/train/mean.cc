// SPDX-License-Identifier: Apache-2.0
#include "train/mean.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/half.h"
#include "train/out_folder.h"
#include "train/sparse_facts.h"
#include "train/state.h"
#include "train/weights.h"

namespace thimble::train {
namespace {

constexpr size_t kMeanPiece = size_t{64} << 10;

bool IsSame(const TensorInfo& a, const TensorInfo& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape;
}

std::string ValueOf(const SafetensorsMetadata& metadata,
                    const std::string& key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? std::string() : found->second;
}

// Numbers of a type of 4 or 2 bytes.
template <typename T, typename Widen>
void AddNumbers(std::span<const std::byte> bytes, std::span<float> sums,
                const Widen& widen) {
  for (size_t i = 0; i < sums.size(); ++i) {
    T stored;
    std::memcpy(&stored, &bytes[i * sizeof(T)], sizeof(T));
    sums[i] += widen(stored);
  }
}

template <typename T, typename Narrow>
void WriteNumbers(std::span<const float> sums, float count,
                  std::vector<std::byte>* bytes, const Narrow& narrow) {
  bytes->resize(sums.size() * sizeof(T));
  for (size_t i = 0; i < sums.size(); ++i) {
    const T stored = narrow(sums[i] / count);
    std::memcpy(&(*bytes)[i * sizeof(T)], &stored, sizeof(T));
  }
}

void AddAs(const std::string& dtype, std::span<const std::byte> bytes,
           std::span<float> sums) {
  if (dtype == "F16") return AddNumbers<uint16_t>(bytes, sums, F16Value);
  if (dtype == "BF16") return AddNumbers<uint16_t>(bytes, sums, BF16Value);
  AddNumbers<float>(bytes, sums, [](float x) { return x; });
}

void WriteAs(const std::string& dtype, std::span<const float> sums, float count,
             std::vector<std::byte>* bytes) {
  if (dtype == "F16") return WriteNumbers<uint16_t>(sums, count, bytes, F16Of);
  if (dtype == "BF16") {
    return WriteNumbers<uint16_t>(sums, count, bytes, BF16Of);
  }
  WriteNumbers<float>(sums, count, bytes, [](float x) { return x; });
}

size_t BytesOfType(const std::string& dtype) { return dtype == "F32" ? 4 : 2; }

}  // namespace

// One tensor of one file, in pieces that are the same for all files.
class WeightsMean::Reader {
 public:
  static Result<Reader> Of(const File& file, const Content& content) {
    Reader reader(file);
    if (content.member.has_value()) {
      TH_ASSIGN_OR_RETURN(reader.rows_,
                          DenseRows::Of(*file.pool, *content.member));
      return reader;
    }
    reader.tensor_ = file.reader.Find(content.info.name);
    TH_CHECK(reader.tensor_ != nullptr);
    return reader;
  }

  // None at the end.
  Result<std::span<const std::byte>> Next() {
    if (rows_.has_value()) return rows_->Next();
    piece_.resize(static_cast<size_t>(
        std::min<uint64_t>(kMeanPiece, tensor_->bytes - at_)));
    TH_RETURN_IF_ERROR(
        ReadFullyAt(file_->reader.file(), piece_, tensor_->begin + at_));
    at_ += piece_.size();
    return std::span<const std::byte>(piece_);
  }

 private:
  explicit Reader(const File& file) : file_(&file) {}

  const File* file_;
  const SafetensorsReader::Tensor* tensor_ = nullptr;
  std::optional<DenseRows> rows_;
  uint64_t at_ = 0;
  std::vector<std::byte> piece_;
};

Result<WeightsMean> WeightsMean::Open(const std::vector<std::string>& paths) {
  TH_CHECK(!paths.empty());
  WeightsMean mean;
  for (const std::string& path : paths) TH_RETURN_IF_ERROR(mean.Add(path));
  return mean;
}

Status WeightsMean::Add(const std::string& path) {
  TH_ASSIGN_OR_RETURN(SafetensorsReader opened, SafetensorsReader::Open(path));
  const SafetensorsMetadata before =
      std::exchange(metadata_, opened.metadata());
  if (metadata_.contains(kSafetensorsSeal)) {
    TH_RETURN_IF_ERROR(CheckSeal(opened.file()));
  }
  if (ValueOf(metadata_, "format") != kWeightsFormat) {
    return Status::Failed(fmt::format(
        "{} was not written by Train with TrainOptions::out_dir", path));
  }
  File& file = files_.emplace_back(File{std::move(opened), {}});
  auto pool = StoredPool::Read(file.reader, "");
  if (!pool.ok()) {
    return Status::Failed(fmt::format("{} is damaged, or was changed: {}", path,
                                      pool.status().message()));
  }
  file.pool = *std::move(pool);
  if (file.pool.has_value()) file.pool->DropIndex();
  std::vector<Content> contents;
  for (const auto& tensor : file.reader.tensors()) {
    const bool is_pool =
        file.pool.has_value() &&
        (&tensor == &file.pool->index() || &tensor == &file.pool->values());
    if (is_pool) continue;
    const std::string& type = tensor.info.dtype;
    if (type != "F32" && type != "F16" && type != "BF16") {
      return Status::Failed(
          fmt::format("{}: '{}' is {}, of which no mean is taken", path,
                      tensor.info.name, type));
    }
    contents.push_back({tensor.info, {}});
  }
  if (file.pool.has_value()) {
    for (size_t m = 0; m < file.pool->facts().shapes.size(); ++m) {
      contents.push_back({file.pool->DenseInfo(m), m});
    }
  }
  const bool is_first = files_.size() == 1;
  const bool fits =
      is_first || (ValueOf(before, "model") == ValueOf(metadata_, "model") &&
                   std::ranges::equal(contents, contents_, IsSame,
                                      &Content::info, &Content::info));
  if (!fits) {
    return Status::Failed(fmt::format(
        "{} and {} are weights of different models, which have no mean",
        files_.front().reader.path(), path));
  }
  contents_ = std::move(contents);
  metadata_.erase(kSafetensorsSeal);
  metadata_.erase(kWeightsChecksum);
  EraseSparseFacts(&metadata_);
  return Status::Ok();
}

TensorInfo WeightsMean::info(size_t i) const { return contents_[i].info; }

size_t WeightsMean::members() const {
  const auto& pool = files_.front().pool;
  return pool.has_value() ? pool->facts().shapes.size() : 0;
}

Status WeightsMean::Stream(size_t i, ByteSink sink) const {
  const Content& content = contents_[i];
  const std::string& dtype = content.info.dtype;
  std::vector<Reader> readers;
  for (const File& file : files_) {
    TH_ASSIGN_OR_RETURN(Reader reader, Reader::Of(file, content));
    readers.push_back(std::move(reader));
  }
  std::vector<float> sums;
  std::vector<std::byte> bytes;
  for (;;) {
    for (size_t k = 0; k < readers.size(); ++k) {
      TH_ASSIGN_OR_RETURN(const auto piece, readers[k].Next());
      if (k == 0) sums.assign(piece.size() / BytesOfType(dtype), 0.0f);
      TH_CHECK(piece.size() == sums.size() * BytesOfType(dtype));
      AddAs(dtype, piece, sums);
    }
    if (sums.empty()) return Status::Ok();
    WriteAs(dtype, sums, static_cast<float>(readers.size()), &bytes);
    TH_RETURN_IF_ERROR(sink(bytes));
  }
}

Result<std::vector<std::string>> LastEpochs(const std::string& dir,
                                            int64_t epochs) {
  TH_ASSIGN_OR_RETURN(std::vector<int64_t> kept, KeptEpochs(dir));
  if (std::ssize(kept) < epochs) {
    return Status::Failed(fmt::format(
        "{} keeps the weights of {} epochs, a mean of {} was asked for; train "
        "with TrainOptions::keep_epochs of at least that",
        dir, kept.size(), epochs));
  }
  std::vector<std::string> paths;
  for (int64_t epoch : std::span(kept).last(static_cast<size_t>(epochs))) {
    paths.push_back(EpochPath(dir, epoch));
  }
  return paths;
}

Status LoadMean(const WeightsMean& mean, Session& session) {
  const Plan& plan = session.plan();
  const StateValues values = ModelState(plan);
  for (size_t v = 0; v < values.size(); ++v) {
    const TensorInfo wanted = TensorInfoOf(plan.graph().value(values[v]));
    size_t i = 0;
    while (i < mean.size() && !IsSame(mean.info(i), wanted)) ++i;
    if (i == mean.size()) {
      return Status::Failed(fmt::format(
          "the weights have no '{}' of the shape and type that the model has",
          wanted.name));
    }
    std::span<std::byte> to = session.Bytes(values[v]);
    TH_RETURN_IF_ERROR(mean.Stream(i, [&to](std::span<const std::byte> piece) {
      TH_CHECK(piece.size() <= to.size());
      std::ranges::copy(piece, to.begin());
      to = to.subspan(piece.size());
      return Status::Ok();
    }));
    TH_CHECK(to.empty());
  }
  return Status::Ok();
}

Status LoadWeightsOrMean(const std::string& dir, int64_t average,
                         Session& session) {
  if (average == 0) return LoadWeights(dir, session);
  TH_ASSIGN_OR_RETURN(const auto paths, LastEpochs(dir, average));
  TH_ASSIGN_OR_RETURN(const WeightsMean mean, WeightsMean::Open(paths));
  return LoadMean(mean, session);
}

}  // namespace thimble::train
