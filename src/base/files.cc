// SPDX-License-Identifier: Apache-2.0
#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace thimble {
namespace {

// Linux transfers at most this much per call anyway.
constexpr size_t kMaxTransfer = 0x7ffff000;

// "cannot open /x/y: Permission denied; check the permissions …", from errno.
Status SystemError(const char* action, const std::string& path) {
  const int error = errno;
  const char* hint = "";
  if (error == ENOENT) {
    struct stat info;
    hint = lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode)
               ? "; it is a link to nothing: mend or remove it"
               : "; check the name and that its folder is there";
  }
  if (error == ENOSPC || error == EDQUOT) hint = "; free some space there";
  if (error == EFBIG)
    hint = "; raise the limit on the size of files (ulimit -f)";
  if (error == EACCES || error == EPERM || error == EROFS) {
    hint = "; check the permissions or choose another place";
  }
  return Status::Failed(
      fmt::format("cannot {} {}: {}{}", action, path, strerror(error), hint));
}

// Repeats a call that a signal has interrupted. File systems in user space and
// on the network let even open, fsync and rename be interrupted.
template <typename Call>
auto Retried(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

int OpenFolderAt(const std::string& path) {
  return Retried(
      [&] { return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
}

std::string NameOf(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// Makes a finished rename survive a power failure.
Status SyncFolder(const FileDescriptor& folder) {
  // Some file systems cannot sync a folder, and say so with EINVAL.
  if (Retried([&] { return fsync(folder.get()); }) != 0 && errno != EINVAL &&
      errno != ENOTSUP) {
    return SystemError("sync folder", folder.path());
  }
  return Status::Ok();
}

constexpr const char* kTemporary = ".tmp.";

// Whether `name` is that of a temporary file for one called `base`. Those of
// earlier versions ended in the process's number.
bool IsTemporaryName(std::string_view name, const std::string& base) {
  const std::string prefix = base + kTemporary;
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  return !name.empty() &&
         name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string TemporaryName(const std::string& base) {
  uint64_t random = 0;
  // At worst it is always the same name, which O_EXCL gives to one at a time.
  Retried([&] { return getrandom(&random, sizeof(random), 0); });
  return fmt::format("{}{}{:016x}", base, kTemporary, random);
}

// One pread; the number of bytes, or -1 with errno set.
ssize_t PreadOnce(const FileDescriptor& file, std::span<std::byte> buffer,
                  uint64_t offset) {
  if (offset > static_cast<uint64_t>(std::numeric_limits<off_t>::max())) {
    errno = EOVERFLOW;
    return -1;
  }
  return Retried([&] {
    return pread(file.get(), buffer.data(),
                 std::min(buffer.size(), kMaxTransfer),
                 static_cast<off_t>(offset));
  });
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
  FileDescriptor file(Retried([&] {
                        return open(path.c_str(),
                                    O_RDONLY | O_CLOEXEC | O_NONBLOCK);
                      }),
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

Status MakeDirs(const std::string& path, std::vector<std::string>* made) {
  if (path.empty()) return Status::Usage("the name of a folder is empty");
  // From the outermost folder inwards; a trailing slash does no harm.
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (!IsFolder(part)) {
      if (mkdir(part.c_str(), 0777) == 0) {
        if (made != nullptr) made->push_back(part);
      } else if (errno != EEXIST) {
        return SystemError("make folder", part);
      } else if (!IsFolder(part)) {  // Not made by another one in between.
        return Status::Failed(fmt::format(
            "cannot make folder {}: {} is there and is not a folder", path,
            part));
      }
    }
    if (end == std::string::npos) return Status::Ok();
  }
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<bool> IsThere(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return SystemError("examine", path);
}

bool IsSameFile(const std::string& a, const std::string& b) {
  struct stat of_a, of_b;
  return stat(a.c_str(), &of_a) == 0 && stat(b.c_str(), &of_b) == 0 &&
         of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

LockState TryLock(const FileDescriptor& file) {
  const int locked =
      Retried([&] { return flock(file.get(), LOCK_EX | LOCK_NB); });
  if (locked == 0) return LockState::kTaken;
  return errno == EWOULDBLOCK ? LockState::kHeldByAnother : LockState::kUnknown;
}

Result<FileDescriptor> LockFolder(const std::string& path) {
  FileDescriptor folder(OpenFolderAt(path), path);
  if (folder.get() < 0) return SystemError("open folder", path);
  if (TryLock(folder) == LockState::kHeldByAnother) {
    return Status::Failed(
        fmt::format("{} is in use by another process; wait for its end, or "
                    "choose another folder",
                    path));
  }
  return folder;
}

std::string PlaceOf(const FileDescriptor& file) {
  struct stat by_name, by_descriptor;
  if (stat(file.path().c_str(), &by_name) == 0 &&
      fstat(file.get(), &by_descriptor) == 0 &&
      by_name.st_dev == by_descriptor.st_dev &&
      by_name.st_ino == by_descriptor.st_ino) {
    return file.path();  // as the user has written it
  }
  char place[PATH_MAX];
  const ssize_t length =
      readlink(fmt::format("/proc/self/fd/{}", file.get()).c_str(), place,
               sizeof(place));
  if (length <= 0) return file.path();
  return std::string(place, static_cast<size_t>(length));
}

AtomicFileWriter::AtomicFileWriter(FileDescriptor folder, std::string name)
    : folder_(std::move(folder)),
      path_(folder_.path() == "." ? name : folder_.path() + "/" + name),
      name_(std::move(name)) {}

AtomicFileWriter::AtomicFileWriter(AtomicFileWriter&& other) noexcept
    : folder_(std::move(other.folder_)),
      path_(std::move(other.path_)),
      name_(std::move(other.name_)),
      temporary_(std::move(other.temporary_)),
      file_(std::move(other.file_)),
      bytes_written_(other.bytes_written_),
      failed_(other.failed_),
      pending_(std::exchange(other.pending_, false)) {}

AtomicFileWriter::~AtomicFileWriter() {
  if (pending_) unlinkat(folder_.get(), temporary_.c_str(), 0);
}

Result<AtomicFileWriter> AtomicFileWriter::Create(const std::string& path) {
  const std::string folder = FolderOf(path);
  AtomicFileWriter writer(FileDescriptor(OpenFolderAt(folder), folder),
                          NameOf(path));
  writer.path_ = path;
  TH_RETURN_IF_ERROR(writer.Open());
  return writer;
}

Result<AtomicFileWriter> AtomicFileWriter::CreateIn(
    const FileDescriptor& folder, const std::string& name) {
  AtomicFileWriter writer(
      FileDescriptor(fcntl(folder.get(), F_DUPFD_CLOEXEC, 0), folder.path()),
      name);
  TH_RETURN_IF_ERROR(writer.Open());
  return writer;
}

Status AtomicFileWriter::Open() {
  if (folder_.get() < 0) return SystemError("write", path_);
  // Between making a file and locking it, somebody who clears the folder up may
  // take it for a stale one: then another name.
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary_ = TemporaryName(name_);
    const int fd = Retried([&] {
      return openat(folder_.get(), temporary_.c_str(),
                    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    });
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) return SystemError("write", path_);
    file_ = FileDescriptor(fd, temporary_);
    struct stat info;
    if (TryLock(file_) == LockState::kHeldByAnother || fstat(fd, &info) != 0 ||
        info.st_nlink == 0) {
      continue;
    }
    pending_ = true;
    return Status::Ok();
  }
  errno = EBUSY;
  return SystemError("write", path_);
}

bool AtomicFileWriter::Touches(const std::string& path,
                               const std::string& other) {
  if (IsSameFile(path, other)) return true;
  if (!IsSameFile(FolderOf(path), FolderOf(other))) return false;
  const std::string name = NameOf(other);
  return name == NameOf(path) || IsTemporaryName(name, NameOf(path));
}

Status AtomicFileWriter::Fail(const char* action) {
  failed_ = true;
  return SystemError(action, path_);
}

Status AtomicFileWriter::Write(std::span<const std::byte> bytes) {
  TH_RETURN_IF_ERROR(Put(bytes, bytes_written_));
  bytes_written_ += bytes.size();
  return Status::Ok();
}

Status AtomicFileWriter::Rewrite(std::span<const std::byte> bytes,
                                 uint64_t offset) {
  TH_CHECK(offset + bytes.size() <= bytes_written_);
  return Put(bytes, offset);
}

Status AtomicFileWriter::Put(std::span<const std::byte> bytes,
                             uint64_t offset) {
  if (failed_) {
    return Status::Failed(
        fmt::format("cannot write {}: an earlier write failed", path_));
  }
  while (!bytes.empty()) {
    const ssize_t put = Retried([&] {
      return pwrite(file_.get(), bytes.data(),
                    std::min(bytes.size(), kMaxTransfer),
                    static_cast<off_t>(offset));
    });
    if (put < 0) return Fail("write");
    bytes = bytes.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return Status::Ok();
}

Status AtomicFileWriter::Commit() {
  TH_CHECK(pending_);
  TH_RETURN_IF_ERROR(Write({}));
  if (Retried([&] { return fsync(file_.get()); }) != 0) return Fail("sync");
  if (Retried([&] {
        return renameat(folder_.get(), temporary_.c_str(), folder_.get(),
                        name_.c_str());
      }) != 0) {
    return Fail("rename");
  }
  pending_ = false;
  return SyncFolder(folder_);
}

void RemoveStaleTemporaries(const std::string& path) {
  const std::string base = NameOf(path);
  DIR* entries = opendir(FolderOf(path).c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) {
    if (!IsTemporaryName(entry->d_name, base)) continue;
    const FileDescriptor file(
        openat(dirfd(entries), entry->d_name,
               O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC),
        entry->d_name);
    if (file.get() >= 0 && TryLock(file) == LockState::kTaken) {
      unlinkat(dirfd(entries), entry->d_name, 0);
    }
  }
  closedir(entries);
}

}  // namespace thimble
