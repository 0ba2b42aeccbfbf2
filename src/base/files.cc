// SPDX-License-Identifier: Apache-2.0
#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace thimble {
namespace {

// Linux transfers at most this much per call anyway.
constexpr size_t kMaxTransfer = 0x7ffff000;

// "cannot open /x/y: No such file or directory", from errno.
Status SystemError(const char* action, const std::string& path) {
  const int error = errno;
  const char* hint = "";
  if (error == ENOSPC || error == EDQUOT) hint = "; free some space there";
  if (error == EACCES || error == EPERM || error == EROFS) {
    hint = "; check the permissions or choose another place";
  }
  return Status::Failed(
      fmt::format("cannot {} {}: {}{}", action, path, strerror(error), hint));
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string NameOf(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// Whether both are there and are one file or folder.
bool IsSame(const std::string& a, const std::string& b) {
  struct stat of_a, of_b;
  return stat(a.c_str(), &of_a) == 0 && stat(b.c_str(), &of_b) == 0 &&
         of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

// Makes a finished rename survive a power failure.
Status SyncFolder(const std::string& folder) {
  const FileDescriptor file(
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), folder);
  if (file.get() < 0) return SystemError("open folder", folder);
  // Some file systems cannot sync a folder, and say so with EINVAL.
  if (fsync(file.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    return SystemError("sync folder", folder);
  }
  return Status::Ok();
}

constexpr const char* kTemporary = ".tmp.";

// The process that `name` is a temporary file of, if it is one for a file
// called `base`; else 0.
pid_t WriterOf(std::string_view name, const std::string& base) {
  const std::string prefix = base + kTemporary;
  if (!name.starts_with(prefix)) return 0;
  name.remove_prefix(prefix.size());
  pid_t pid = 0;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), pid);
  const bool is_number =
      error == std::errc() && end == name.data() + name.size() && pid > 0;
  return is_number ? pid : 0;
}

// One pread; the number of bytes, or -1 with errno set.
ssize_t PreadOnce(const FileDescriptor& file, std::span<std::byte> buffer,
                  uint64_t offset) {
  if (offset > static_cast<uint64_t>(std::numeric_limits<off_t>::max())) {
    errno = EOVERFLOW;
    return -1;
  }
  ssize_t got;
  do {
    got =
        pread(file.get(), buffer.data(), std::min(buffer.size(), kMaxTransfer),
              static_cast<off_t>(offset));
  } while (got < 0 && errno == EINTR);
  return got;
}

}  // namespace

FileDescriptor::FileDescriptor(int fd, std::string path)
    : fd_(fd), path_(std::move(path)) {}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
  }
  return *this;
}

Result<FileDescriptor> OpenForReading(const std::string& path) {
  // O_NONBLOCK: opening a pipe must fail below, not wait for a writer.
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK),
                      path);
  if (file.get() < 0) return SystemError("open", path);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return SystemError("examine", path);
  if (!S_ISREG(info.st_mode)) {
    return Status::Failed(
        fmt::format("cannot read {}: it is not a regular file", path));
  }
  return file;
}

Result<FileStamp> StampOf(const FileDescriptor& file) {
  struct stat info;
  if (fstat(file.get(), &info) != 0) return SystemError("examine", file.path());
  return FileStamp{
      static_cast<uint64_t>(info.st_size),
      int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

Status ReadFullyAt(const FileDescriptor& file, std::span<std::byte> buffer,
                   uint64_t offset) {
  while (!buffer.empty()) {
    const ssize_t got = PreadOnce(file, buffer, offset);
    if (got < 0) return SystemError("read", file.path());
    if (got == 0) {
      return Status::Failed(fmt::format(
          "{} ends at byte {}, {} bytes too early; it was cut short "
          "or changed while in use",
          file.path(), offset, buffer.size()));
    }
    buffer = buffer.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return Status::Ok();
}

Result<size_t> ReadSomeAt(const FileDescriptor& file,
                          std::span<std::byte> buffer, uint64_t offset) {
  const ssize_t got = PreadOnce(file, buffer, offset);
  if (got < 0) return SystemError("read", file.path());
  return static_cast<size_t>(got);
}

bool IsFile(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool IsFolder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Status MakeDirs(const std::string& path) {
  if (path.empty()) return Status::Usage("the name of a folder is empty");
  // From the outermost folder inwards; a trailing slash does no harm.
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (!IsFolder(part) && mkdir(part.c_str(), 0777) != 0) {
      const int error = errno;
      // Another process may have made it in between.
      if (error == EEXIST && !IsFolder(part)) {
        return Status::Failed(fmt::format(
            "cannot make folder {}: {} is there and is not a folder", path,
            part));
      }
      errno = error;
      if (error != EEXIST) return SystemError("make folder", part);
    }
    if (end == std::string::npos) return Status::Ok();
  }
}

Result<FileDescriptor> LockFolder(const std::string& path) {
  FileDescriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                        path);
  if (folder.get() < 0) return SystemError("open folder", path);
  if (flock(folder.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return Status::Failed(
        fmt::format("{} is in use by another process; wait for its end, or "
                    "choose another folder",
                    path));
  }
  return folder;
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

AtomicFileWriter::AtomicFileWriter(std::string path, FileDescriptor file)
    : path_(std::move(path)), file_(std::move(file)) {}

AtomicFileWriter::AtomicFileWriter(AtomicFileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::move(other.file_)),
      bytes_written_(other.bytes_written_),
      failed_(other.failed_),
      pending_(std::exchange(other.pending_, false)) {}

AtomicFileWriter::~AtomicFileWriter() {
  if (pending_) unlink(file_.path().c_str());
}

Result<AtomicFileWriter> AtomicFileWriter::Create(const std::string& path) {
  std::string temporary = fmt::format("{}{}{}", path, kTemporary, getpid());
  // A file left by a killed process of the same number; O_EXCL then makes sure
  // that no link planted there is followed.
  unlink(temporary.c_str());
  const int fd =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return SystemError("write", path);
  return AtomicFileWriter(path, FileDescriptor(fd, std::move(temporary)));
}

bool AtomicFileWriter::Touches(const std::string& path,
                               const std::string& other) {
  if (IsSame(path, other)) return true;
  if (!IsSame(FolderOf(path), FolderOf(other))) return false;
  const std::string name = NameOf(other);
  return name == NameOf(path) || WriterOf(name, NameOf(path)) > 0;
}

Status AtomicFileWriter::Fail(const char* action) {
  failed_ = true;
  return SystemError(action, path_);
}

Status AtomicFileWriter::Write(std::span<const std::byte> bytes) {
  if (failed_) {
    return Status::Failed(
        fmt::format("cannot write {}: an earlier write failed", path_));
  }
  while (!bytes.empty()) {
    const ssize_t put =
        write(file_.get(), bytes.data(), std::min(bytes.size(), kMaxTransfer));
    if (put < 0) {
      if (errno == EINTR) continue;
      return Fail("write");
    }
    bytes = bytes.subspan(static_cast<size_t>(put));
    bytes_written_ += static_cast<uint64_t>(put);
  }
  return Status::Ok();
}

Status AtomicFileWriter::Commit() {
  TH_CHECK(pending_);
  TH_RETURN_IF_ERROR(Write({}));
  if (fsync(file_.get()) != 0) return Fail("sync");
  if (rename(file_.path().c_str(), path_.c_str()) != 0) return Fail("rename");
  pending_ = false;
  return SyncFolder(FolderOf(path_));
}

void RemoveStaleTemporaries(const std::string& path) {
  const std::string folder = FolderOf(path);
  const std::string base = NameOf(path);
  DIR* entries = opendir(folder.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) {
    const pid_t writer = WriterOf(entry->d_name, base);
    if (writer > 0 && kill(writer, 0) != 0 && errno == ESRCH) {
      unlinkat(dirfd(entries), entry->d_name, 0);
    }
  }
  closedir(entries);
}

}  // namespace thimble
