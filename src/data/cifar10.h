// SPDX-License-Identifier: Apache-2.0
//
// CIFAR-10's binary version: six files of records without a header, each record
// a label byte and then the red, green and blue plane of a 32 x 32 image. Every
// file is checked when it is opened (a whole number of records, every label in
// range), and each error names the file.
//
// Functions and the Dataset are safe from every thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "thimble/data.h"

namespace thimble {

inline constexpr char kCifar10[] = "cifar10";
inline constexpr int32_t kCifar10Classes = 10;
inline constexpr size_t kCifar10ImageBytes = size_t{3} * 32 * 32;
inline constexpr size_t kCifar10RecordBytes = 1 + kCifar10ImageBytes;
// Of each official file.
inline constexpr uint64_t kCifar10FileRecords = 10'000;

inline constexpr size_t kCifar10Files = 6;
inline constexpr size_t kCifar10TrainFiles = 5;
// The training split is the first five, one after the other.
inline constexpr std::array<std::string_view, kCifar10Files> kCifar10Names = {
    "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
    "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

// The folder that holds at least one of the files: `folder` itself, or the
// folder cifar-10-batches-bin in it, as the archive unpacks. Empty if neither,
// or if `folder` is; an error where they cannot be looked at.
Result<std::string> FindCifar10Folder(const std::string& folder);

// Whether all six are there, by name only. False of an empty name.
Result<bool> HasCifar10Files(const std::string& folder);

// Opens the six files in `folder`. With `official` each must have as many
// records as the published one; otherwise any positive number will do.
Result<std::unique_ptr<Dataset>> OpenCifar10Folder(const std::string& name,
                                                   const std::string& folder,
                                                   bool official);

}  // namespace thimble
