// SPDX-License-Identifier: Apache-2.0
//
// A Dataset over a folder of four IDX files, unpacking compressed ones into the
// cache first. Functions are safe from every thread, except that one process
// should open a folder for the first time from one thread only.
#pragma once

#include <memory>
#include <string>

#include "thimble/data.h"

namespace thimble {

// Whether all four files are in `folder`, plain or with .gz. An error where it
// cannot be looked at.
Result<bool> HasIdxFiles(const std::string& folder);

// Opens the files in `folder`. `name` is the dataset's name(), `cache_name` the
// beginning of the name of its folder under `cache_dir`. An empty `cache_dir`
// stands for the user's cache folder, which need not exist if nothing has to be
// unpacked.
Result<std::unique_ptr<Dataset>> OpenIdxFolder(const std::string& name,
                                               const std::string& folder,
                                               const std::string& cache_name,
                                               const std::string& cache_dir);

}  // namespace thimble
