// SPDX-License-Identifier: Apache-2.0
//
// NewFolder: a folder that is there as a whole, or not at all. Files are
// written to one beside it, NAME.tmp.<16 hexadecimal digits>, which takes its
// name in the end. What a killed process has left is removed by the next one.
// Belongs to one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "thimble/status.h"

namespace thimble::text {

class NewFolder {
 public:
  // Makes the folders on the way. Fails where anything has the name.
  static Result<NewFolder> Create(const std::string& path);
  ~NewFolder();
  NewFolder(NewFolder&& other) noexcept;
  NewFolder& operator=(NewFolder&&) = delete;

  // A file in it, as long as it has no name of its own.
  std::string File(std::string_view name) const;
  // Writes a whole file.
  Status Write(std::string_view name, std::string_view text) const;
  // REQUIRES: called once, and last.
  Status Commit();

 private:
  explicit NewFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::string place_;  // where it is meanwhile; empty: nowhere
  FileDescriptor lock_;
  std::vector<std::string> made_;  // folders on the way
};

}  // namespace thimble::text
