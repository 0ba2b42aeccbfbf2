// SPDX-License-Identifier: Apache-2.0
//
// Files by plain POSIX calls: reads go by pread straight into the caller's
// memory (mapped pages and stream buffers would count as resident bytes that no
// plan knows of), and a file is written whole or not at all. Every error names
// the path and the system's reason.
//
// FileDescriptor: reads may come from many threads at once. AtomicFileWriter
// belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "thimble/status.h"

namespace thimble {

// An open file and the path that it is known by. Closed on destruction.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  FileDescriptor(int fd, std::string path);
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;

  // -1 when nothing is open.
  int get() const { return fd_; }
  const std::string& path() const { return path_; }

 private:
  int fd_ = -1;
  std::string path_;
};

// What tells one version of a file from another.
struct FileStamp {
  uint64_t bytes;
  int64_t modified_ns;  // since 1970
};

// Opens a regular file; anything else (a folder, a pipe) is refused.
Result<FileDescriptor> OpenForReading(const std::string& path);
Result<FileStamp> StampOf(const FileDescriptor& file);

// Fills `buffer` from byte `offset` on. A file that ends before is an error.
// Allocates nothing on success.
Status ReadFullyAt(const FileDescriptor& file, std::span<std::byte> buffer,
                   uint64_t offset);
// Up to buffer.size() bytes; 0 at the end of the file.
Result<size_t> ReadSomeAt(const FileDescriptor& file,
                          std::span<std::byte> buffer, uint64_t offset);

// Whether `path` is a regular file, or a folder (links are followed).
bool IsFile(const std::string& path);
bool IsFolder(const std::string& path);

// Makes the folder and its parents; fine if it is there already. Appends those
// that were not there to `made`, unless that is null.
Status MakeDirs(const std::string& path,
                std::vector<std::string>* made = nullptr);

// The folder that a file of this name lies in.
std::string FolderOf(const std::string& path);

// Whether anything has this name: a link counts, wherever it leads. Unknown (a
// folder on the way that may not be searched) is an error.
Result<bool> IsThere(const std::string& path);

// Whether both names stand for one file or folder.
bool IsSameFile(const std::string& a, const std::string& b);

// Takes the folder for one user of this function, until what it gives is
// closed, be it by the end of the process. Fails where another one has it. File
// systems without locks (some network ones) let everybody in.
Result<FileDescriptor> LockFolder(const std::string& path);

// Where the open folder or file is now: it may have been moved. Its path when
// it was opened, where the system does not tell.
std::string PlaceOf(const FileDescriptor& file);

// The lock of an open file, for as long as it is open. kUnknown: the file
// system has no locks, or fails at giving one.
enum class LockState { kTaken, kHeldByAnother, kUnknown };
LockState TryLock(const FileDescriptor& file);

// Writes a file so that, whatever happens, its name stands for either the old
// contents or all of the new ones: bytes go to a temporary file beside it,
// NAME.tmp.<16 hexadecimal digits>, and Commit syncs that, renames it over the
// name and syncs the folder. Without Commit the temporary file is removed. The
// digits are random, so that processes of several machines or containers may
// share a folder; the file is locked while it is written, which tells it from
// one that a killed process has left.
class AtomicFileWriter {
 public:
  // The folder must exist.
  static Result<AtomicFileWriter> Create(const std::string& path);
  // In an open folder, wherever that is moved meanwhile. `name` has no slash.
  static Result<AtomicFileWriter> CreateIn(const FileDescriptor& folder,
                                           const std::string& name);
  // Whether `other` is the file at `path`, or a temporary one of some process
  // for it; be it by a link, or not there yet.
  static bool Touches(const std::string& path, const std::string& other);
  ~AtomicFileWriter();
  AtomicFileWriter(AtomicFileWriter&& other) noexcept;
  AtomicFileWriter& operator=(AtomicFileWriter&&) = delete;

  // Appends. After a failure every further call fails too.
  Status Write(std::span<const std::byte> bytes);
  // Other bytes for some that were written: a header, once what is behind it is
  // known. REQUIRES: all of them were.
  Status Rewrite(std::span<const std::byte> bytes, uint64_t offset);
  uint64_t bytes_written() const { return bytes_written_; }
  // REQUIRES: called at most once, and last.
  Status Commit();

 private:
  AtomicFileWriter(FileDescriptor folder, std::string name);
  Status Open();
  Status Fail(const char* action);
  Status Put(std::span<const std::byte> bytes, uint64_t offset);

  FileDescriptor folder_;
  std::string path_;  // for messages
  std::string name_;  // in the folder, and the temporary one's
  std::string temporary_;
  FileDescriptor file_;
  uint64_t bytes_written_ = 0;
  bool failed_ = false;
  // Whether a temporary file exists for the destructor to remove.
  bool pending_ = false;
};

// Removes what killed processes have left of an AtomicFileWriter for `path`:
// temporary files that nobody holds locked. Where the file system has no locks,
// they stay.
void RemoveStaleTemporaries(const std::string& path);

}  // namespace thimble
