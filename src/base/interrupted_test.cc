// SPDX-License-Identifier: Apache-2.0
//
// Calls that a signal interrupts, and locks that a file system does not give.
// The functions of the C library are replaced here: each fails as often as a
// test asks for, then does its work.
#include <errno.h>
#include <gtest/gtest.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "base/files.h"
#include "base/test_folder.h"

namespace {

// How many calls still succeed, how many then fail, and how.
int g_successes = 0;
int g_failures = 0;
int g_error = EINTR;

bool Fails() {
  if (g_failures == 0 || g_successes-- > 0) return false;
  g_successes = 0;
  --g_failures;
  errno = g_error;
  return true;
}

}  // namespace

extern "C" {

int fsync(int fd) {
  return Fails() ? -1 : static_cast<int>(syscall(SYS_fsync, fd));
}

int renameat(int from_folder, const char* from, int to_folder,
             const char* to) noexcept {
  if (Fails()) return -1;
  return static_cast<int>(
      syscall(SYS_renameat, from_folder, from, to_folder, to));
}

int openat(int folder, const char* name, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const int mode = va_arg(arguments, int);
  va_end(arguments);
  if (Fails()) return -1;
  return static_cast<int>(syscall(SYS_openat, folder, name, flags, mode));
}

int flock(int fd, int operation) noexcept {
  return Fails() ? -1 : static_cast<int>(syscall(SYS_flock, fd, operation));
}

}  // extern "C"

namespace thimble {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

void FailNext(int calls, int error, int after = 0) {
  g_successes = after;
  g_failures = calls;
  g_error = error;
}

TEST(Interrupted, CallsAreRepeated) {
  const TestFolder folder;
  // Making the file calls openat and flock; committing it fsync, renameat and
  // fsync of the folder.
  for (int call = 0; call < 2; ++call) {
    FailNext(3, EINTR, call);
    const auto writer = AtomicFileWriter::Create(folder.File("f"));
    EXPECT_TRUE(writer.ok()) << call << writer.status().message();
    EXPECT_EQ(g_failures, 0) << call;
  }
  for (int call = 0; call < 3; ++call) {
    auto writer = AtomicFileWriter::Create(folder.File("f"));
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->Write(Bytes(std::to_string(call))).ok());
    FailNext(3, EINTR, call);
    const Status status = writer->Commit();
    EXPECT_TRUE(status.ok()) << call << status.message();
    EXPECT_EQ(g_failures, 0) << call;
    EXPECT_EQ(ReadTestFile(folder.File("f")), std::to_string(call));
  }
}

TEST(Interrupted, OtherErrorsAreNot) {
  const TestFolder folder;
  auto writer = AtomicFileWriter::Create(folder.File("f"));
  ASSERT_TRUE(writer.ok());
  FailNext(1, EIO);
  EXPECT_NE(writer->Commit().message().find("cannot sync"), std::string::npos);
}

TEST(Interrupted, LocksThatCannotBeHadAreNobodyElses) {
  const TestFolder folder;
  const auto held = LockFolder(folder.path());
  ASSERT_TRUE(held.ok());
  FailNext(2, EINTR);
  EXPECT_FALSE(LockFolder(folder.path()).ok());
  for (const int error : {ENOLCK, EOPNOTSUPP, EINVAL, EIO}) {
    FailNext(1, error);
    EXPECT_TRUE(LockFolder(folder.path()).ok()) << error;
    FailNext(1, error);
    EXPECT_EQ(TryLock(*held), LockState::kUnknown) << error;
  }
}

}  // namespace
}  // namespace thimble
