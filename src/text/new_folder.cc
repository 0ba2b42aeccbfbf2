// SPDX-License-Identifier: Apache-2.0
#include "text/new_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace thimble::text {
namespace {

constexpr std::string_view kTemporary = ".tmp.";
constexpr size_t kDigits = 16;

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Status Refused(const char* action, const std::string& path) {
  return Status::Failed(fmt::format("cannot {} {}: {}; choose another place",
                                    action, path, std::strerror(errno)));
}

// A folder of files, with what is in it.
void RemoveFolder(const std::string& path) {
  DIR* entries = opendir(path.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) {
    unlinkat(dirfd(entries), entry->d_name, 0);
  }
  closedir(entries);
  rmdir(path.c_str());
}

bool IsTemporaryOf(std::string_view name, const std::string& base) {
  const std::string prefix = base + std::string(kTemporary);
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  return name.size() == kDigits &&
         name.find_first_not_of("0123456789abcdef") == name.npos;
}

// Those that nobody holds locked.
void RemoveStale(const std::string& path) {
  const std::string parent = ParentOf(path);
  const std::string base = path.substr(path.rfind('/') + 1);
  std::vector<std::string> stale;
  DIR* entries = opendir(parent.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) {
    if (IsTemporaryOf(entry->d_name, base)) {
      stale.push_back(parent + "/" + entry->d_name);
    }
  }
  closedir(entries);
  for (const std::string& folder : stale) {
    const auto lock = LockFolder(folder);
    if (lock.ok() && TryLock(*lock) == LockState::kTaken) RemoveFolder(folder);
  }
}

}  // namespace

Result<NewFolder> NewFolder::Create(const std::string& path) {
  NewFolder folder(path);
  while (folder.path_.size() > 1 && folder.path_.ends_with('/')) {
    folder.path_.pop_back();
  }
  TH_ASSIGN_OR_RETURN(const bool is_there, IsThere(folder.path_));
  if (is_there) {
    return Status::Failed(
        fmt::format("{} is there already; remove it, or choose another "
                    "PrepareOptions::out",
                    folder.path_));
  }
  TH_RETURN_IF_ERROR(MakeDirs(ParentOf(folder.path_), &folder.made_));
  RemoveStale(folder.path_);
  // Between making and locking one, somebody may take it for a stale one.
  for (int attempt = 0; attempt < 100; ++attempt) {
    uint64_t digits = 0;
    if (getrandom(&digits, sizeof(digits), 0) < 0) continue;
    const std::string place =
        fmt::format("{}{}{:016x}", folder.path_, kTemporary, digits);
    if (mkdir(place.c_str(), 0777) != 0) return Refused("make folder", place);
    auto lock = LockFolder(place);
    if (!lock.ok() || !IsFolder(place)) continue;
    folder.lock_ = *std::move(lock);
    folder.place_ = place;
    return folder;
  }
  return Refused("make folder", folder.path_);
}

NewFolder::NewFolder(NewFolder&& other) noexcept
    : path_(std::move(other.path_)),
      place_(std::exchange(other.place_, "")),
      lock_(std::move(other.lock_)),
      made_(std::exchange(other.made_, {})) {}

NewFolder::~NewFolder() {
  if (!place_.empty()) RemoveFolder(place_);
  // Only those that are empty.
  for (size_t i = made_.size(); i > 0; --i) rmdir(made_[i - 1].c_str());
}

std::string NewFolder::File(std::string_view name) const {
  return fmt::format("{}/{}", place_, name);
}

Status NewFolder::Write(std::string_view name, std::string_view text) const {
  TH_ASSIGN_OR_RETURN(AtomicFileWriter file,
                      AtomicFileWriter::Create(File(name)));
  TH_RETURN_IF_ERROR(file.Write(std::as_bytes(std::span(text))));
  return file.Commit();
}

Status NewFolder::Commit() {
  TH_CHECK(!place_.empty());
  // An empty folder that came meanwhile is replaced, another one is not.
  if (std::rename(place_.c_str(), path_.c_str()) != 0) {
    return Refused("make folder", path_);
  }
  place_.clear();
  // So that the name survives a power failure, where the system can do that.
  const FileDescriptor parent(
      open(ParentOf(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC),
      ParentOf(path_));
  if (parent.get() >= 0) fsync(parent.get());
  return Status::Ok();
}

}  // namespace thimble::text
