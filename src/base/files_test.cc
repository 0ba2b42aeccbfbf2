// SPDX-License-Identifier: Apache-2.0
#include "base/files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>

#include "base/test_folder.h"

namespace thimble {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::span<std::byte> Writable(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

bool Mentions(const Status& status, std::string_view text) {
  return status.message().find(text) != std::string::npos;
}

TEST(OpenForReading, NamesAMissingFile) {
  const TestFolder folder;
  const auto file = OpenForReading(folder.File("absent"));
  ASSERT_FALSE(file.ok());
  EXPECT_TRUE(Mentions(file.status(), folder.File("absent")));
  EXPECT_TRUE(Mentions(file.status(),
                       "No such file or directory; check the name and that its "
                       "folder is there"));
}

TEST(OpenForReading, SaysThatALinkPointsToNothing) {
  const TestFolder folder;
  ASSERT_EQ(symlink("absent", folder.File("link").c_str()), 0);
  EXPECT_TRUE(Mentions(OpenForReading(folder.File("link")).status(),
                       "it is a link to nothing: mend or remove it"));
}

TEST(OpenForReading, RefusesFoldersAndPipesWithoutWaiting) {
  const TestFolder folder;
  EXPECT_TRUE(
      Mentions(OpenForReading(folder.path()).status(), "not a regular file"));
  ASSERT_EQ(mkfifo(folder.File("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(Mentions(OpenForReading(folder.File("pipe")).status(),
                       "not a regular file"));
}

TEST(ReadFullyAt, ReadsExactlyTheBytesAsked) {
  const TestFolder folder;
  WriteTestFile(folder.File("f"), "0123456789");
  const auto file = OpenForReading(folder.File("f"));
  ASSERT_TRUE(file.ok());
  std::string buffer(4, '?');
  EXPECT_TRUE(ReadFullyAt(*file, Writable(buffer), 6).ok());
  EXPECT_EQ(buffer, "6789");
  EXPECT_TRUE(ReadFullyAt(*file, {}, 99).ok());
  EXPECT_EQ(StampOf(*file)->bytes, 10u);
}

TEST(ReadFullyAt, ReportsAShortFileByName) {
  const TestFolder folder;
  WriteTestFile(folder.File("f"), "0123456789");
  const auto file = OpenForReading(folder.File("f"));
  ASSERT_TRUE(file.ok());
  std::string buffer(4, '?');
  const Status status = ReadFullyAt(*file, Writable(buffer), 7);
  EXPECT_EQ(status.code(), StatusCode::kFailed);
  EXPECT_TRUE(Mentions(status, folder.File("f") + " ends at byte 10, 1 bytes"));
  EXPECT_FALSE(ReadFullyAt(*file, Writable(buffer), ~uint64_t{0}).ok());
}

TEST(ReadSomeAt, StopsAtTheEnd) {
  const TestFolder folder;
  WriteTestFile(folder.File("f"), "0123456789");
  const auto file = OpenForReading(folder.File("f"));
  ASSERT_TRUE(file.ok());
  std::string buffer(4, '?');
  EXPECT_EQ(*ReadSomeAt(*file, Writable(buffer), 8), 2u);
  EXPECT_EQ(*ReadSomeAt(*file, Writable(buffer), 10), 0u);
}

TEST(FileDescriptor, MovesWithoutClosingTwice) {
  const TestFolder folder;
  WriteTestFile(folder.File("f"), "x");
  auto file = OpenForReading(folder.File("f"));
  ASSERT_TRUE(file.ok());
  FileDescriptor moved = *std::move(file);
  FileDescriptor assigned;
  assigned = std::move(moved);
  std::string buffer(1, '?');
  EXPECT_TRUE(ReadFullyAt(assigned, Writable(buffer), 0).ok());
  EXPECT_EQ(buffer, "x");
}

TEST(AtomicFileWriter, KnowsWhichFilesItTouches) {
  const TestFolder folder;
  const std::string real = folder.File("real");
  const std::string link = folder.File("link");
  ASSERT_TRUE(MakeDirs(real).ok());
  ASSERT_EQ(symlink(real.c_str(), link.c_str()), 0);
  const std::string path = real + "/f";
  const auto expect_touched = [&] {
    for (const std::string& other :
         {path, folder.path() + "/./real//f", link + "/f", link + "/f.tmp.7"}) {
      EXPECT_TRUE(AtomicFileWriter::Touches(path, other)) << other;
    }
  };
  expect_touched();  // before it is there
  WriteTestFile(path, "x");
  expect_touched();
  ASSERT_EQ(symlink(path.c_str(), folder.File("soft").c_str()), 0);
  ASSERT_EQ(::link(path.c_str(), folder.File("hard").c_str()), 0);
  EXPECT_TRUE(AtomicFileWriter::Touches(path, folder.File("soft")));
  EXPECT_TRUE(AtomicFileWriter::Touches(path, folder.File("hard")));
  for (const std::string& other :
       {folder.File("f"), real + "/g", real + "/f.tmp.x", real + "/f.jsonl",
        folder.File("nowhere/f"), std::string("/dev/null")}) {
    EXPECT_FALSE(AtomicFileWriter::Touches(path, other)) << other;
  }
}

TEST(AtomicFileWriter, ReplacesTheFileOnlyAtCommit) {
  const TestFolder folder;
  WriteTestFile(folder.File("f"), "old");
  auto writer = AtomicFileWriter::Create(folder.File("f"));
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Write(Bytes("new ")).ok());
  ASSERT_TRUE(writer->Write(Bytes("contents")).ok());
  ASSERT_TRUE(writer->Rewrite(Bytes("NE"), 0).ok());
  ASSERT_TRUE(writer->Write(Bytes("!")).ok());
  EXPECT_EQ(writer->bytes_written(), 13u);
  EXPECT_EQ(ReadTestFile(folder.File("f")), "old");
  EXPECT_EQ(folder.CountFiles(), 2);
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_EQ(ReadTestFile(folder.File("f")), "NEw contents!");
  EXPECT_EQ(folder.CountFiles(), 1);
}

TEST(AtomicFileWriter, LeavesNothingBehindWithoutCommit) {
  const TestFolder folder;
  {
    auto writer = AtomicFileWriter::Create(folder.File("f"));
    ASSERT_TRUE(writer.ok());
    const AtomicFileWriter moved = *std::move(writer);
    EXPECT_EQ(folder.CountFiles(), 1);
  }
  EXPECT_EQ(folder.CountFiles(), 0);
}

// Processes of two containers may have the same number.
TEST(AtomicFileWriter, LeavesTemporaryFilesOfOthersAlone) {
  const TestFolder folder;
  const std::string other = folder.File("f.tmp.") + std::to_string(getpid());
  WriteTestFile(other, "somebody else's");
  auto first = AtomicFileWriter::Create(folder.File("f"));
  auto second = AtomicFileWriter::Create(folder.File("f"));
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE(first->Write(Bytes("first")).ok());
  ASSERT_TRUE(second->Write(Bytes("second")).ok());
  ASSERT_TRUE(first->Commit().ok());
  EXPECT_EQ(ReadTestFile(folder.File("f")), "first");
  ASSERT_TRUE(second->Commit().ok());
  EXPECT_EQ(ReadTestFile(folder.File("f")), "second");
  EXPECT_EQ(ReadTestFile(other), "somebody else's");
}

TEST(AtomicFileWriter, WritesIntoTheFolderThatWasOpened) {
  const TestFolder folder;
  const std::string run = folder.File("run");
  ASSERT_TRUE(MakeDirs(run).ok());
  auto held = LockFolder(run);
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(PlaceOf(*held), run);
  ASSERT_EQ(rename(run.c_str(), folder.File("moved").c_str()), 0);
  ASSERT_TRUE(MakeDirs(run).ok());
  WriteTestFile(run + "/f", "another's");
  auto writer = AtomicFileWriter::CreateIn(*held, "f");
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  ASSERT_TRUE(writer->Write(Bytes("mine")).ok());
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_EQ(ReadTestFile(run + "/f"), "another's");
  EXPECT_EQ(ReadTestFile(folder.File("moved") + "/f"), "mine");
  EXPECT_EQ(PlaceOf(*held).substr(PlaceOf(*held).rfind('/')), "/moved");
}

TEST(AtomicFileWriter, NamesAMissingFolder) {
  const TestFolder folder;
  const auto writer = AtomicFileWriter::Create(folder.File("absent/f"));
  ASSERT_FALSE(writer.ok());
  EXPECT_TRUE(Mentions(writer.status(), folder.File("absent/f")));
}

TEST(AtomicFileWriter, ReportsARefusedRenameAndRemovesTheTemporaryFile) {
  const TestFolder folder;
  ASSERT_TRUE(MakeDirs(folder.File("f")).ok());
  {
    auto writer = AtomicFileWriter::Create(folder.File("f"));
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE(Mentions(writer->Commit(), "cannot rename"));
  }
  EXPECT_EQ(folder.CountFiles(), 0);
}

// A limit on file sizes stands in for a full disk.
TEST(AtomicFileWriter, ReportsAFailedWriteAndKeepsTheOldFile) {
  const TestFolder folder;
  WriteTestFile(folder.File("f"), "old");
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit small = before;
  small.rlim_cur = 1000;
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  {
    auto writer = AtomicFileWriter::Create(folder.File("f"));
    ASSERT_TRUE(writer.ok());
    const std::string big(3000, 'x');
    const Status status = writer->Write(Bytes(big));
    EXPECT_TRUE(Mentions(status, "cannot write " + folder.File("f")));
    EXPECT_TRUE(Mentions(status, "File too large"));
    EXPECT_FALSE(writer->Write(Bytes("more")).ok());
    EXPECT_FALSE(writer->Commit().ok());
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(ReadTestFile(folder.File("f")), "old");
  EXPECT_EQ(folder.CountFiles(), 1);
}

TEST(MakeDirs, MakesParentsAndAcceptsWhatExists) {
  const TestFolder folder;
  EXPECT_TRUE(MakeDirs(folder.File("a/b/c")).ok());
  EXPECT_TRUE(MakeDirs(folder.File("a/b/c/")).ok());
  EXPECT_TRUE(IsFolder(folder.File("a/b/c")));
  EXPECT_TRUE(MakeDirs("/").ok());
}

TEST(MakeDirs, RefusesAFileInTheWay) {
  const TestFolder folder;
  WriteTestFile(folder.File("file"), "");
  EXPECT_TRUE(IsFile(folder.File("file")));
  const Status status = MakeDirs(folder.File("file/below"));
  EXPECT_TRUE(Mentions(status, "is not a folder")) << status.message();
  EXPECT_EQ(MakeDirs("").code(), StatusCode::kUsage);
}

TEST(LockFolder, LetsOneInAtATime) {
  const TestFolder folder;
  {
    const auto first = LockFolder(folder.path());
    ASSERT_TRUE(first.ok()) << first.status().message();
    const auto second = LockFolder(folder.path());
    ASSERT_FALSE(second.ok());
    EXPECT_TRUE(Mentions(second.status(), folder.path() + " is in use"));
  }
  EXPECT_TRUE(LockFolder(folder.path()).ok());
  EXPECT_EQ(folder.CountFiles(), 0);
  EXPECT_TRUE(Mentions(LockFolder(folder.File("absent")).status(), "absent"));
}

TEST(IsThere, CountsLinksThatLeadNowhere) {
  const TestFolder folder;
  EXPECT_FALSE(*IsThere(folder.File("f")));
  WriteTestFile(folder.File("f"), "");
  EXPECT_TRUE(*IsThere(folder.File("f")));
  EXPECT_FALSE(*IsThere(folder.File("f/below")));
  ASSERT_EQ(symlink("nowhere", folder.File("link").c_str()), 0);
  EXPECT_TRUE(*IsThere(folder.File("link")));
  ASSERT_EQ(symlink("loop", folder.File("loop").c_str()), 0);
  EXPECT_TRUE(Mentions(IsThere(folder.File("loop/f")).status(), "loop/f"));
}

TEST(RemoveStaleTemporaries, TakesFilesThatNobodyWrites) {
  const TestFolder folder;
  const std::string stale[] = {folder.File("f.tmp.4711"),
                               folder.File("f.tmp.0123456789abcdef")};
  for (const std::string& path : stale) WriteTestFile(path, "half");
  const std::string kept[] = {folder.File("f"), folder.File("g.tmp.4711"),
                              stale[0] + ".bak", folder.File("f.tmp.")};
  for (const std::string& path : kept) WriteTestFile(path, "kept");
  auto writer = AtomicFileWriter::Create(folder.File("f"));
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Write(Bytes("new")).ok());
  RemoveStaleTemporaries(folder.File("f"));
  for (const std::string& path : stale) EXPECT_FALSE(IsFile(path)) << path;
  for (const std::string& path : kept) EXPECT_TRUE(IsFile(path)) << path;
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_EQ(ReadTestFile(folder.File("f")), "new");
  RemoveStaleTemporaries(folder.File("absent/f"));
}

}  // namespace
}  // namespace thimble
