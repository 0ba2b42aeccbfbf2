// SPDX-License-Identifier: Apache-2.0
#include "text/new_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "base/test_folder.h"

namespace thimble::text {
namespace {

TEST(NewFolder, RemovesWhatAKilledProcessHasLeft) {
  const TestFolder folder;
  const std::string stale = folder.File("new.tmp.0123456789abcdef");
  const std::string other = folder.File("new.tmp.mine");
  for (const std::string& made : {stale, other}) {
    ASSERT_EQ(mkdir(made.c_str(), 0777), 0);
    WriteTestFile(made + "/train.tokens", "half");
  }
  {
    auto made = NewFolder::Create(folder.File("new/"));
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_FALSE(IsFolder(stale));
    EXPECT_TRUE(IsFolder(other));
    ASSERT_TRUE(made->Write("a", "text").ok());
    // Somebody else's, which is at work.
    auto second = NewFolder::Create(folder.File("new"));
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(ReadTestFile(made->File("a")), "text");
    ASSERT_TRUE(made->Commit().ok());
    EXPECT_EQ(ReadTestFile(folder.File("new/a")), "text");
    ASSERT_TRUE(second->Write("a", "late").ok());
    EXPECT_FALSE(second->Commit().ok());
  }
  EXPECT_EQ(ReadTestFile(folder.File("new/a")), "text");
  EXPECT_EQ(folder.CountFiles(), 2);
}

TEST(NewFolder, LeavesNoFoldersOnTheWay) {
  const TestFolder folder;
  { ASSERT_TRUE(NewFolder::Create(folder.File("a/b/c")).ok()); }
  EXPECT_FALSE(IsFolder(folder.File("a")));
}

}  // namespace
}  // namespace thimble::text
