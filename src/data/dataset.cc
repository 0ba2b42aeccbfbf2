// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "data/cifar10.h"
#include "data/idx_dataset.h"
#include "data/places.h"
#include "data/synthetic.h"
#include "thimble/data.h"

namespace thimble {
namespace {

constexpr char kFashionMnist[] = "fashion-mnist";
constexpr char kSynthetic[] = "synthetic";
constexpr char kSyntheticCifar[] = "synthetic-cifar";
constexpr std::array<DatasetSummary, 4> kKnown = {
    {{kCifar10,
      "50,000 + 10,000 colour photographs, 32 x 32, 10 classes; get it with "
      "FetchDataset(\"cifar10\")",
      false},
     {kFashionMnist,
      "60,000 + 10,000 grey images of clothes, 28 x 28, 10 classes; Debian "
      "package dataset-fashion-mnist",
      false},
     {kSynthetic,
      "4,096 + 1,000 computed grey images, 28 x 28, 10 classes; no files",
      true},
     {kSyntheticCifar,
      "4,096 + 1,000 computed colour images, 32 x 32, 10 classes, like "
      "CIFAR-10; no files",
      true}}};

// Where Debian's package dataset-fashion-mnist puts its files.
constexpr char kDebianFolder[] = "/usr/share/datasets/fashion-mnist";

constexpr char kFashionMnistAdvice[] =
    "install it with `apt-get install dataset-fashion-mnist`, or give the "
    "folder of its files with DataOptions::data_dir";
constexpr char kCifar10Advice[] =
    "get it with FetchDataset(\"cifar10\"), or give the folder of its files "
    "with DataOptions::data_dir";

// The set's own folder in the cache. Empty without a home: there is then no
// such folder to look in, which is no error yet.
std::string CachedFolder(const char* name, const DataOptions& options) {
  std::string cache = options.cache_dir;
  if (cache.empty()) {
    auto found = UserCacheDir();
    if (!found.ok()) return {};
    cache = *std::move(found);
  }
  return fmt::format("{}/{}", cache, name);
}

Result<std::unique_ptr<Dataset>> OpenFashionMnist(const DataOptions& options) {
  if (!options.data_dir.empty()) {
    TH_ASSIGN_OR_RETURN(const bool there, HasIdxFiles(options.data_dir));
    auto opened = OpenIdxFolder(kFashionMnist, options.data_dir, kFashionMnist,
                                options.cache_dir);
    if (opened.ok() || there) return opened;
    return Status::Failed(
        fmt::format("{}; {}", opened.status().message(), kFashionMnistAdvice));
  }
  TH_ASSIGN_OR_RETURN(const std::string folder,
                      LocateDataset(kFashionMnist, options));
  if (!folder.empty()) {
    return OpenIdxFolder(kFashionMnist, folder, kFashionMnist,
                         options.cache_dir);
  }
  const std::string cached = CachedFolder(kFashionMnist, options);
  return Status::Failed(
      fmt::format("fashion-mnist is neither in {} nor in {}; {}",
                  cached.empty() ? "a cache folder" : cached, kDebianFolder,
                  kFashionMnistAdvice));
}

Result<std::unique_ptr<Dataset>> OpenCifar10(const DataOptions& options) {
  const std::string place = options.data_dir.empty()
                                ? CachedFolder(kCifar10, options)
                                : options.data_dir;
  TH_ASSIGN_OR_RETURN(const std::string folder, FindCifar10Folder(place));
  if (folder.empty()) {
    return Status::Failed(fmt::format("cifar10 is not in {}; {}",
                                      place.empty() ? "a cache folder" : place,
                                      kCifar10Advice));
  }
  return OpenCifar10Folder(kCifar10, folder, /*official=*/true);
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

const char* AugmentName(Augment augment) {
  return augment == Augment::kCropFlip ? "crop-flip" : "none";
}

Result<Augment> ParseAugment(std::string_view name) {
  for (Augment augment : {Augment::kNone, Augment::kCropFlip}) {
    if (name == AugmentName(augment)) return augment;
  }
  return Status::Usage(
      fmt::format("unknown augmentation '{}'; it is none or crop-flip", name));
}

std::span<const DatasetSummary> KnownDatasets() { return kKnown; }

Result<std::string> LocateDataset(const std::string& name,
                                  const DataOptions& options) {
  if (name == kCifar10) {
    TH_ASSIGN_OR_RETURN(std::string folder,
                        FindCifar10Folder(options.data_dir.empty()
                                              ? CachedFolder(kCifar10, options)
                                              : options.data_dir));
    TH_ASSIGN_OR_RETURN(const bool all, HasCifar10Files(folder));
    return all ? folder : std::string();
  }
  if (name != kFashionMnist) return std::string();
  std::vector<std::string> places = {options.data_dir};
  if (options.data_dir.empty()) {
    places = {CachedFolder(kFashionMnist, options), kDebianFolder};
  }
  for (const std::string& place : places) {
    if (place.empty()) continue;
    TH_ASSIGN_OR_RETURN(const bool all, HasIdxFiles(place));
    if (all) return place;
  }
  return std::string();
}

Result<std::unique_ptr<Dataset>> OpenDataset(const std::string& name_or_dir,
                                             const DataOptions& options) {
  if (name_or_dir == kFashionMnist) return OpenFashionMnist(options);
  if (name_or_dir == kSynthetic) return MakeSyntheticDataset();
  if (name_or_dir == kCifar10) return OpenCifar10(options);
  if (name_or_dir == kSyntheticCifar) return MakeSyntheticCifarDataset();
  TH_ASSIGN_OR_RETURN(const PathKind kind, KindOf(name_or_dir));
  if (kind == PathKind::kFolder) {
    TH_ASSIGN_OR_RETURN(const std::string cifar10,
                        FindCifar10Folder(name_or_dir));
    if (!cifar10.empty()) {
      return OpenCifar10Folder(name_or_dir, cifar10, /*official=*/false);
    }
    return OpenIdxFolder(name_or_dir, name_or_dir, "idx", options.cache_dir);
  }
  if (name_or_dir.find('/') != std::string::npos) {
    return Status::Failed(
        fmt::format("{}; known datasets by name: {}",
                    kind == PathKind::kNothing
                        ? fmt::format("there is no folder {}", name_or_dir)
                        : fmt::format("{} is not a folder", name_or_dir),
                    KnownNames()));
  }
  return Status::Usage(fmt::format(
      "unknown dataset '{}'; known ones are {}, or give a folder that holds "
      "IDX files or the six files of CIFAR-10",
      name_or_dir, KnownNames()));
}

}  // namespace thimble
