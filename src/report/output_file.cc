// SPDX-License-Identifier: Apache-2.0
#include "report/output_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

namespace thimble::report {

Result<AtomicFileWriter> CreateOutputFile(const std::string& path) {
  struct stat there;
  if (lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    return Status::Failed(fmt::format(
        "cannot write {}: it is there and is not a regular file; choose "
        "another name",
        path));
  }
  return AtomicFileWriter::Create(path);
}

}  // namespace thimble::report
