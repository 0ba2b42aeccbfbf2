// SPDX-License-Identifier: Apache-2.0
//
// For tests only: a folder that stands in for /, with made files of /proc and
// /sys. One thread.
#pragma once

#include <string>
#include <string_view>

#include "base/files.h"
#include "base/test_folder.h"

namespace thimble {

class MadeSystem {
 public:
  MadeSystem(std::string_view cgroup, std::string_view mountinfo) {
    Write("/proc/self/cgroup", cgroup);
    Write("/proc/self/mountinfo", mountinfo);
  }
  const std::string& root() const { return folder_.path(); }
  // `path` as the process would name it.
  void Write(const std::string& path, std::string_view text) {
    const std::string full = folder_.path() + path;
    EXPECT_TRUE(MakeDirs(full.substr(0, full.rfind('/'))).ok());
    WriteTestFile(full, text);
  }

 private:
  TestFolder folder_;
};

}  // namespace thimble
