// SPDX-License-Identifier: Apache-2.0
#include "data/idx_dataset.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/files.h"
#include "base/sha256.h"
#include "data/gunzip.h"
#include "data/idx.h"
#include "data/places.h"

namespace thimble {
namespace {

enum FileIndex : size_t {
  kTrainImages,
  kTrainLabels,
  kTestImages,
  kTestLabels
};
constexpr size_t kFiles = 4;
constexpr std::array<std::string_view, kFiles> kFileNames = {
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

IdxKind KindOfFile(size_t file) {
  return file == kTrainImages || file == kTestImages ? IdxKind::kImages
                                                     : IdxKind::kLabels;
}

struct SourceFile {
  std::string path;  // empty when neither form is there
  bool compressed = false;
};

Result<SourceFile> FindFile(const std::string& folder, size_t file) {
  const std::string plain = fmt::format("{}/{}", folder, kFileNames[file]);
  TH_ASSIGN_OR_RETURN(const bool is_plain, HasFile(plain));
  if (is_plain) return SourceFile{plain, false};
  TH_ASSIGN_OR_RETURN(const bool is_packed, HasFile(plain + ".gz"));
  if (is_packed) return SourceFile{plain + ".gz", true};
  return SourceFile{};
}

// Opens `path` and checks its header against its length.
Status CheckIdxFile(const std::string& path, size_t file) {
  TH_ASSIGN_OR_RETURN(const FileDescriptor opened, OpenForReading(path));
  return KindOfFile(file) == IdxKind::kImages
             ? ReadIdxImagesHeader(opened).status()
             : ReadIdxLabelsHeader(opened).status();
}

Status UnpackFile(const std::string& source, const std::string& target,
                  size_t file) {
  const IdxKind kind = KindOfFile(file);
  return GunzipFile(source, target,
                    {.bytes = IdxHeaderBytes(kind),
                     .length = [&](std::span<const std::byte> header) {
                       return PromisedIdxBytes(source, kind, header);
                     }});
}

// Twelve digits that change whenever a compressed file is moved or replaced.
Result<std::string> StampOfSources(const std::string& folder,
                                   std::span<const SourceFile> sources) {
  Sha256 sha;
  char* const real = realpath(folder.c_str(), nullptr);
  sha.Update(real != nullptr ? real : folder.c_str());
  std::free(real);
  for (const SourceFile& source : sources) {
    if (!source.compressed) continue;
    TH_ASSIGN_OR_RETURN(const FileDescriptor file, OpenForReading(source.path));
    TH_ASSIGN_OR_RETURN(const FileStamp stamp, StampOf(file));
    const size_t slash = source.path.rfind('/');
    sha.Update(fmt::format("\n{} {} {}", source.path.substr(slash + 1),
                           stamp.bytes, stamp.modified_ns));
  }
  return Hex(sha.Final()).substr(0, 12);
}

// Unpacks every compressed source that the cache does not hold yet, and puts
// the unpacked file's path in its place.
Status Unpack(const std::string& folder, const std::string& cache_name,
              const std::string& cache_dir, std::span<SourceFile> sources) {
  std::string cache = cache_dir;
  if (cache.empty()) {
    TH_ASSIGN_OR_RETURN(cache, UserCacheDir());
  }
  TH_ASSIGN_OR_RETURN(const std::string stamp, StampOfSources(folder, sources));
  cache += fmt::format("/{}-{}", cache_name, stamp);
  TH_RETURN_IF_ERROR(MakeDirs(cache));
  for (size_t file = 0; file < kFiles; ++file) {
    SourceFile& source = sources[file];
    if (!source.compressed) continue;
    const std::string target = fmt::format("{}/{}", cache, kFileNames[file]);
    if (!CheckIdxFile(target, file).ok()) {
      Status status = UnpackFile(source.path, target, file);
      if (!status.ok()) {
        rmdir(cache.c_str());  // stays where something is in it
        return status;
      }
    }
    source = {target, false};
  }
  return Status::Ok();
}

class IdxDataset : public Dataset {
 public:
  static Result<std::unique_ptr<Dataset>> Open(
      const std::string& name, std::span<const SourceFile> files) {
    TH_ASSIGN_OR_RETURN(
        IdxSplit train,
        IdxSplit::Open(files[kTrainImages].path, files[kTrainLabels].path));
    TH_ASSIGN_OR_RETURN(IdxSplit test, IdxSplit::Open(files[kTestImages].path,
                                                      files[kTestLabels].path));
    if (train.height() != test.height() || train.width() != test.width()) {
      return Status::Failed(fmt::format(
          "images of {} are {} x {}, but those of {} are {} x {}; both must "
          "come from the same dataset",
          files[kTrainImages].path, train.height(), train.width(),
          files[kTestImages].path, test.height(), test.width()));
    }
    Sha256 train_labels;
    Sha256 test_labels;
    TH_RETURN_IF_ERROR(train.CheckLabels(&train_labels));
    TH_RETURN_IF_ERROR(test.CheckLabels(&test_labels));
    PixelStatistics statistics;
    TH_RETURN_IF_ERROR(train.Measure(&statistics));
    Facts facts{.name = name,
                .spec = {1, train.height(), train.width(), kIdxClasses},
                .train_size = train.count(),
                .test_size = test.count(),
                .mean = {statistics.mean()},
                .stddev = {statistics.stddev()},
                .train_labels = Hex(train_labels.Final()),
                .test_labels = Hex(test_labels.Final())};
    return std::unique_ptr<Dataset>(
        new IdxDataset(std::move(facts), std::move(train), std::move(test)));
  }

 private:
  IdxDataset(Facts facts, IdxSplit train, IdxSplit test)
      : Dataset(std::move(facts)),
        train_(std::move(train)),
        test_(std::move(test)) {}

  Status ReadRecord(Split split, int64_t index, std::span<uint8_t> image,
                    int32_t* label) const override {
    return (split == Split::kTrain ? train_ : test_).Read(index, image, label);
  }

  IdxSplit train_;
  IdxSplit test_;
};

}  // namespace

Result<bool> HasIdxFiles(const std::string& folder) {
  for (size_t file = 0; file < kFiles; ++file) {
    TH_ASSIGN_OR_RETURN(const SourceFile source, FindFile(folder, file));
    if (source.path.empty()) return false;
  }
  return true;
}

Result<std::unique_ptr<Dataset>> OpenIdxFolder(const std::string& name,
                                               const std::string& folder,
                                               const std::string& cache_name,
                                               const std::string& cache_dir) {
  std::array<SourceFile, kFiles> sources;
  bool compressed = false;
  for (size_t file = 0; file < kFiles; ++file) {
    TH_ASSIGN_OR_RETURN(sources[file], FindFile(folder, file));
    if (sources[file].path.empty()) {
      return Status::Failed(
          fmt::format("{0} has no file {1} or {1}.gz; a dataset's folder must "
                      "hold {2}, {3}, {4} and {5}",
                      folder, kFileNames[file], kFileNames[0], kFileNames[1],
                      kFileNames[2], kFileNames[3]));
    }
    compressed |= sources[file].compressed;
  }
  if (compressed) {
    TH_RETURN_IF_ERROR(Unpack(folder, cache_name, cache_dir, sources));
  }
  return IdxDataset::Open(name, sources);
}

}  // namespace thimble
