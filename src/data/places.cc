// SPDX-License-Identifier: Apache-2.0
#include "data/places.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "thimble/size.h"

namespace thimble {

Result<PathKind> KindOf(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0) {
    return S_ISREG(info.st_mode)   ? PathKind::kFile
           : S_ISDIR(info.st_mode) ? PathKind::kFolder
                                   : PathKind::kOther;
  }
  if (errno == ENOENT) return PathKind::kNothing;
  return Status::Failed(
      fmt::format("cannot look at {}: {}; check the path and its permissions",
                  path, strerror(errno)));
}

Result<bool> HasFile(const std::string& path) {
  TH_ASSIGN_OR_RETURN(const PathKind kind, KindOf(path));
  return kind == PathKind::kFile;
}

Status CheckRoom(const std::string& folder, uint64_t bytes) {
  struct statvfs info;
  if (statvfs(folder.c_str(), &info) != 0 || info.f_blocks == 0) {
    return Status::Ok();
  }
  // The superuser may also fill what is kept back.
  const uint64_t blocks = geteuid() == 0 ? info.f_bfree : info.f_bavail;
  const uint64_t block = info.f_frsize;
  if (block == 0 || bytes / block < blocks) return Status::Ok();
  return Status::Failed(
      fmt::format("{} needs to take a file of {}, but has room for {} only; "
                  "free some space there, or choose another place",
                  folder, FormatBytes(bytes), FormatBytes(blocks * block)));
}

Result<std::string> UserCacheDir() {
  // The XDG standard says to ignore a relative path.
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  if (xdg != nullptr && xdg[0] == '/') return std::string(xdg) + "/thimble";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] != '\0') {
    return std::string(home) + "/.cache/thimble";
  }
  return Status::Failed(
      "there is no cache folder: set HOME, or XDG_CACHE_HOME to an absolute "
      "path");
}

}  // namespace thimble
