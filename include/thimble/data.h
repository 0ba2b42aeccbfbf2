// SPDX-License-Identifier: Apache-2.0
//
// Datasets of labelled images. A Dataset does not hold its images in memory.
// Each record (an image and its label) is read when it is asked for, straight
// into memory of the caller, which the plan has counted.
//
// A Dataset does not change after OpenDataset. All its methods are safe from
// every thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "thimble/status.h"

namespace thimble {

enum class Split { kTrain, kTest };

struct ImageSpec {
  int64_t channels;
  int64_t height;
  int64_t width;
  int32_t classes;  // labels are 0 .. classes-1

  // Bytes of one image: one per channel and pixel.
  int64_t bytes() const { return channels * height * width; }
};

// What is done to a training image after it was read.
enum class Augment {
  kNone,
  // The image is padded by 4 pixels on each side by reflection and cropped back
  // to its size at a random place. In one case of two it is also mirrored left
  // to right.
  kCropFlip,
};

const char* AugmentName(Augment augment);  // as ParseAugment takes it
Result<Augment> ParseAugment(std::string_view name);

class Dataset {
 public:
  virtual ~Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  // As given to OpenDataset.
  const std::string& name() const { return facts_.name; }
  const ImageSpec& spec() const { return facts_.spec; }
  int64_t size(Split split) const {
    return split == Split::kTrain ? facts_.train_size : facts_.test_size;
  }

  // Mean and standard deviation of the training split's pixels, one per
  // channel, in units of 0..255. A deviation is never zero: for constant images
  // it is given as 1.
  std::span<const float> mean() const { return facts_.mean; }
  std::span<const float> stddev() const { return facts_.stddev; }

  // What this set is usually trained with.
  Augment usual_augment() const { return facts_.usual_augment; }

  // Reads record `index` of `split`: the image's spec().bytes() bytes, channel
  // by channel and row by row, and the label. Allocates nothing when it
  // succeeds.
  Status Read(Split split, int64_t index, std::span<uint8_t> image,
              int32_t* label) const;

  // 16 hexadecimal digits by which a resumed run knows its data again. They are
  // a digest of the shape, the sizes, mean and deviation, up to 256 records of
  // each split (evenly spaced), and, for sets that OpenDataset opens, all
  // labels in order. Names, paths, times and compression do not matter. Reads
  // files.
  Result<std::string> Fingerprint() const;

 protected:
  struct Facts {
    std::string name;
    ImageSpec spec;
    int64_t train_size;
    int64_t test_size;
    std::vector<float> mean;
    std::vector<float> stddev;
    Augment usual_augment = Augment::kNone;
    // Digests of all labels in order, for Fingerprint. Empty if not known.
    std::string train_labels = {};
    std::string test_labels = {};
  };
  explicit Dataset(Facts facts);
  // The facts of another set, for sets that are views of it.
  static const Facts& FactsOf(const Dataset& data) { return data.facts_; }

 private:
  // Does what Read says. Index and size of `image` have been checked.
  virtual Status ReadRecord(Split split, int64_t index,
                            std::span<uint8_t> image, int32_t* label) const = 0;

  Facts facts_;
};

struct DataOptions {
  // Where a named dataset's files are. If empty, the usual places.
  std::string data_dir;
  // Where compressed files are unpacked to. If empty, the user's cache folder.
  std::string cache_dir;
};

struct DatasetSummary {
  const char* name;
  const char* description;
  bool computed;  // needs no files, so it is always there
};

// The sets that OpenDataset knows by name.
std::span<const DatasetSummary> KnownDatasets();

// The folder in which OpenDataset finds the files of a dataset that it knows by
// name. Empty if the files are not there, or if the set needs none. A place
// that cannot be looked at is an error.
Result<std::string> LocateDataset(const std::string& name,
                                  const DataOptions& options);

// Opens a dataset by its name, or the files in a folder. The folder holds
// either the six .bin files of CIFAR-10's binary version, with any number of
// records, or the four files of an MNIST-like set:
// {train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte, each plain
// or with .gz. Compressed files are unpacked once, into the cache.
Result<std::unique_ptr<Dataset>> OpenDataset(const std::string& name_or_dir,
                                             const DataOptions& options);

// A view of `data` for choosing settings. Its test split is `count` records of
// the training split, the same ones in every run; its training split is the
// others. The real test split is not read.
Result<std::unique_ptr<Dataset>> HoldOut(std::unique_ptr<Dataset> data,
                                         int64_t count);

struct FetchProgress {
  const char* doing;  // "downloading", "unpacking", ...
  uint64_t bytes;     // of it, so far
  uint64_t total;     // 0: not known
};

struct FetchOptions {
  // Where to get the files: an http(s) address of the archive, the archive
  // itself, or a folder that holds the files. If empty, the publisher's
  // address.
  std::string from;
  // A file of SHA-256 sums to check, as sha256sum writes it. If empty, the
  // built-in sums of the published files and their archive.
  std::string sums;
  DataOptions places;
  // Called a few times per second.
  std::function<void(const FetchProgress&)> progress;
};

// Brings a known dataset's files to places.data_dir, or to the cache, and
// returns their folder. All files are compared with their SHA-256 sums before
// the first one appears there. Files that are there and right are left alone.
// What a broken download has brought is kept in the cache, and the next one
// goes on from it. Addresses are read by curl or wget in a process of its own.
Result<std::string> FetchDataset(const std::string& name,
                                 const FetchOptions& options);

}  // namespace thimble
