// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <utility>

#include "base/files.h"
#include "data/idx_dataset.h"
#include "data/synthetic.h"
#include "thimble/data.h"

namespace thimble {
namespace {

constexpr char kFashionMnist[] = "fashion-mnist";
constexpr char kSynthetic[] = "synthetic";
constexpr char kSyntheticCifar[] = "synthetic-cifar";
constexpr std::array<DatasetSummary, 3> kKnown = {
    {{kFashionMnist,
      "60,000 + 10,000 grey images of clothes, 28 x 28, 10 classes; Debian "
      "package dataset-fashion-mnist"},
     {kSynthetic,
      "4,096 + 1,000 computed grey images, 28 x 28, 10 classes; no files"},
     {kSyntheticCifar,
      "4,096 + 1,000 computed colour images, 32 x 32, 10 classes, like "
      "CIFAR-10; no files"}}};

// Where Debian's package dataset-fashion-mnist puts its files.
constexpr char kDebianFolder[] = "/usr/share/datasets/fashion-mnist";

constexpr char kFashionMnistAdvice[] =
    "install it with `apt-get install dataset-fashion-mnist`, or give the "
    "folder of its files with --data-dir DIR";

Result<std::unique_ptr<Dataset>> OpenFashionMnist(const DataOptions& options) {
  if (!options.data_dir.empty()) {
    auto opened = OpenIdxFolder(kFashionMnist, options.data_dir, kFashionMnist,
                                options.cache_dir);
    if (opened.ok() || HasIdxFiles(options.data_dir)) return opened;
    return Status::Failed(
        fmt::format("{}; {}", opened.status().message(), kFashionMnistAdvice));
  }
  std::string cache = options.cache_dir;
  if (cache.empty()) {
    // Without a home there is no such folder to look in, which is no error yet.
    auto found = UserCacheDir();
    if (found.ok()) cache = *std::move(found);
  }
  const std::string cached = cache.empty() ? "" : cache + "/" + kFashionMnist;
  for (const std::string& folder : {cached, std::string(kDebianFolder)}) {
    if (folder.empty() || !HasIdxFiles(folder)) continue;
    return OpenIdxFolder(kFashionMnist, folder, kFashionMnist,
                         options.cache_dir);
  }
  return Status::Failed(
      fmt::format("fashion-mnist is neither in {} nor in {}; {}",
                  cached.empty() ? "a cache folder" : cached, kDebianFolder,
                  kFashionMnistAdvice));
}

std::string KnownNames() {
  std::string names;
  for (const DatasetSummary& known : kKnown) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  }
  return names;
}

}  // namespace

Dataset::Dataset(Facts facts) : facts_(std::move(facts)) {}

Status Dataset::Read(Split split, int64_t index, std::span<uint8_t> image,
                     int32_t* label) const {
  if (index < 0 || index >= size(split)) {
    return Status::Usage(
        fmt::format("{} has no example {}: its {} split has {}", name(), index,
                    split == Split::kTrain ? "training" : "test", size(split)));
  }
  if (image.size() != static_cast<size_t>(spec().bytes())) {
    return Status::Usage(
        fmt::format("an image of {} takes {} bytes, the buffer given has {}",
                    name(), spec().bytes(), image.size()));
  }
  return ReadRecord(split, index, image, label);
}

std::span<const DatasetSummary> KnownDatasets() { return kKnown; }

Result<std::unique_ptr<Dataset>> OpenDataset(const std::string& name_or_dir,
                                             const DataOptions& options) {
  if (name_or_dir == kFashionMnist) return OpenFashionMnist(options);
  if (name_or_dir == kSynthetic) return MakeSyntheticDataset();
  if (name_or_dir == kSyntheticCifar) return MakeSyntheticCifarDataset();
  if (IsFolder(name_or_dir)) {
    return OpenIdxFolder(name_or_dir, name_or_dir, "idx", options.cache_dir);
  }
  if (name_or_dir.find('/') != std::string::npos) {
    return Status::Failed(
        fmt::format("there is no folder {}; known datasets by name: {}",
                    name_or_dir, KnownNames()));
  }
  return Status::Usage(fmt::format(
      "unknown dataset '{}'; known ones are {}, or give a folder that holds "
      "IDX files",
      name_or_dir, KnownNames()));
}

}  // namespace thimble
