// SPDX-License-Identifier: Apache-2.0
#include "data/cifar10.h"

#include <fmt/format.h>

#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/files.h"
#include "base/sha256.h"
#include "data/places.h"

namespace thimble {
namespace {

// As the archive calls its folder.
constexpr char kArchiveFolder[] = "cifar-10-batches-bin";

Status BadBatch(const FileDescriptor& file, const std::string& why) {
  return Status::Failed(
      fmt::format("{}: {}; get the files again with FetchDataset(\"cifar10\")",
                  file.path(), why));
}

Status CheckLabel(const FileDescriptor& file, int64_t record, uint8_t label) {
  if (label < kCifar10Classes) return Status::Ok();
  return BadBatch(
      file, fmt::format("label {} of record {} is out of range 0..{}", label,
                        record, kCifar10Classes - 1));
}

// One file of records. Immutable after Open.
class Batch {
 public:
  // Adds all labels to `labels`.
  static Result<Batch> Open(const std::string& path, bool official,
                            Sha256* labels) {
    TH_ASSIGN_OR_RETURN(FileDescriptor file, OpenForReading(path));
    TH_ASSIGN_OR_RETURN(const FileStamp stamp, StampOf(file));
    const uint64_t records = stamp.bytes / kCifar10RecordBytes;
    if (records == 0 || stamp.bytes % kCifar10RecordBytes != 0) {
      return BadBatch(file,
                      fmt::format("its {} bytes are not a whole number of "
                                  "records of {}",
                                  stamp.bytes, kCifar10RecordBytes));
    }
    if (official && records != kCifar10FileRecords) {
      return BadBatch(
          file, fmt::format("it has {} records, the published file {}", records,
                            kCifar10FileRecords));
    }
    Batch batch(std::move(file), static_cast<int64_t>(records));
    TH_RETURN_IF_ERROR(batch.CheckLabels(labels));
    return batch;
  }

  int64_t records() const { return records_; }

  Status Read(int64_t record, std::span<uint8_t> image, int32_t* label) const {
    // Label and image by one call; the copy costs less than a second call.
    std::array<uint8_t, kCifar10RecordBytes> bytes;
    TH_RETURN_IF_ERROR(ReadFullyAt(
        file_, std::as_writable_bytes(std::span(bytes)), OffsetOf(record)));
    TH_RETURN_IF_ERROR(CheckLabel(file_, record, bytes[0]));
    std::memcpy(image.data(), bytes.data() + 1, kCifar10ImageBytes);
    *label = bytes[0];
    return Status::Ok();
  }

 private:
  Batch(FileDescriptor file, int64_t records)
      : file_(std::move(file)), records_(records) {}

  static uint64_t OffsetOf(int64_t record) {
    return static_cast<uint64_t>(record) * kCifar10RecordBytes;
  }

  // So that a bad one is found before training begins.
  Status CheckLabels(Sha256* labels) const {
    for (int64_t record = 0; record < records_; ++record) {
      uint8_t label = 0;
      const auto byte = std::as_writable_bytes(std::span(&label, 1));
      TH_RETURN_IF_ERROR(ReadFullyAt(file_, byte, OffsetOf(record)));
      TH_RETURN_IF_ERROR(CheckLabel(file_, record, label));
      labels->Update(byte);
    }
    return Status::Ok();
  }

  FileDescriptor file_;
  int64_t records_;
};

class Cifar10Dataset : public Dataset {
 public:
  // The digests are those of all labels of a split.
  Cifar10Dataset(const std::string& name, std::vector<Batch> batches,
                 std::string train_labels, std::string test_labels)
      : Dataset(MakeFacts(name, batches, std::move(train_labels),
                          std::move(test_labels))),
        batches_(std::move(batches)) {}

 private:
  static Facts MakeFacts(const std::string& name,
                         std::span<const Batch> batches,
                         std::string train_labels, std::string test_labels) {
    int64_t train = 0;
    for (const Batch& batch : batches.first(kCifar10TrainFiles)) {
      train += batch.records();
    }
    // The constants that published results are normalised by, not measured
    // ones: 125.307, 122.950, 113.865 and 62.993, 62.089, 66.705.
    return {.name = name,
            .spec = {3, 32, 32, kCifar10Classes},
            .train_size = train,
            .test_size = batches[kCifar10TrainFiles].records(),
            .mean = {125.3f, 123.0f, 113.9f},
            .stddev = {63.0f, 62.1f, 66.7f},
            .usual_augment = Augment::kCropFlip,
            .train_labels = std::move(train_labels),
            .test_labels = std::move(test_labels)};
  }

  Status ReadRecord(Split split, int64_t index, std::span<uint8_t> image,
                    int32_t* label) const override {
    if (split == Split::kTest) {
      return batches_[kCifar10TrainFiles].Read(index, image, label);
    }
    size_t file = 0;
    while (index >= batches_[file].records()) {
      index -= batches_[file++].records();
    }
    return batches_[file].Read(index, image, label);
  }

  std::vector<Batch> batches_;  // in the order of kCifar10Names
};

std::string PathOf(const std::string& folder, size_t file) {
  return fmt::format("{}/{}", folder, kCifar10Names[file]);
}

}  // namespace

Result<std::string> FindCifar10Folder(const std::string& folder) {
  if (folder.empty()) return std::string();
  for (const std::string& place : {folder, folder + "/" + kArchiveFolder}) {
    for (size_t file = 0; file < kCifar10Files; ++file) {
      TH_ASSIGN_OR_RETURN(const bool there, HasFile(PathOf(place, file)));
      if (there) return place;
    }
  }
  return std::string();
}

Result<bool> HasCifar10Files(const std::string& folder) {
  if (folder.empty()) return false;
  for (size_t file = 0; file < kCifar10Files; ++file) {
    TH_ASSIGN_OR_RETURN(const bool there, HasFile(PathOf(folder, file)));
    if (!there) return false;
  }
  return true;
}

Result<std::unique_ptr<Dataset>> OpenCifar10Folder(const std::string& name,
                                                   const std::string& folder,
                                                   bool official) {
  std::vector<Batch> batches;
  batches.reserve(kCifar10Files);
  Sha256 train_labels;
  Sha256 test_labels;
  for (size_t file = 0; file < kCifar10Files; ++file) {
    const std::string path = PathOf(folder, file);
    TH_ASSIGN_OR_RETURN(const bool there, HasFile(path));
    if (!there) {
      return Status::Failed(
          fmt::format("there is no file {}; CIFAR-10 is data_batch_1.bin to "
                      "data_batch_5.bin and test_batch.bin: get them with "
                      "FetchDataset(\"cifar10\")",
                      path));
    }
    TH_ASSIGN_OR_RETURN(
        Batch batch,
        Batch::Open(path, official,
                    file < kCifar10TrainFiles ? &train_labels : &test_labels));
    batches.push_back(std::move(batch));
  }
  return std::unique_ptr<Dataset>(std::make_unique<Cifar10Dataset>(
      name, std::move(batches), Hex(train_labels.Final()),
      Hex(test_labels.Final())));
}

}  // namespace thimble
