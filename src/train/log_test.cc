// SPDX-License-Identifier: Apache-2.0
#include "train/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "base/test_folder.h"

namespace thimble::train {
namespace {

// Without their ends.
std::vector<std::string> LinesOf(const std::string& path) {
  std::istringstream text(ReadTestFile(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

Log Opened(const std::string& path, bool append = false) {
  auto log = Log::Open(path, append);
  EXPECT_TRUE(log.ok()) << log.status().message();
  return log.ok() ? *std::move(log) : Log();
}

TEST(Log, WritesOneObjectPerLineInTheOrderOfEvents) {
  const TestFolder folder;
  const std::string path = folder.File("log");
  Log log = Opened(path);
  const std::vector<SourceFact> facts = {{"data", "few"},
                                         {"train_images", 8},
                                         {"test_images", 4},
                                         {"augment", "none"}};
  log.Start(R"({"model":"m"})", facts, 7);
  log.Step({.epoch = 1,
            .step = 2,
            .loss = 0.1,
            .learning_rate = 0.05,
            .axis = "images",
            .per_second = 1000.5});
  log.Epoch({.epoch = 1,
             .train_loss = 0.5,
             .test_loss = 0.75,
             .metrics = {{"accuracy", true, 0.25, 0.125}},
             .axis = "images",
             .per_second = 10,
             .seconds = 2.5});
  log.Resume(12);
  TrainSummary summary;
  summary.arena_bytes = 4096;
  summary.axis = "images";
  summary.metrics = {{"accuracy", true}};
  summary.steps = 12;
  summary.weights_sha256 = "abc";
  log.Summary(summary);
  EXPECT_TRUE(log.status().ok());

  const std::vector<std::string> lines = LinesOf(path);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0],
            R"({"event":"start","data":"few","train_images":8,"test_images":4,)"
            R"("augment":"none","seed":7,"plan":{"model":"m"}})");
  EXPECT_EQ(lines[1], R"({"event":"step","step":2,"epoch":1,"loss":0.1,)"
                      R"("learning_rate":0.05,"images_per_second":1000.5})");
  EXPECT_EQ(lines[2],
            R"({"event":"epoch","epoch":1,"train_loss":0.5,)"
            R"("train_accuracy":0.25,"test_loss":0.75,"test_accuracy":0.125,)"
            R"("images_per_second":10,"seconds":2.5})");
  EXPECT_EQ(lines[3], R"({"event":"resume","step":12})");
  EXPECT_EQ(lines[4],
            R"({"event":"summary","arena_bytes":4096,"rss_base_bytes":0,)"
            R"("rss_peak_bytes":0,"rss_process_peak_bytes":0,)"
            R"("images_per_second":null,)"
            R"("best_test_accuracy":null,"test_accuracy":null,)"
            R"("final_train_loss":null,"steps":12,"stopped":false,)"
            R"("weights_sha256":"abc"})");
}

TEST(Log, MakesKeysOfTheNamesOfAxisAndMetrics) {
  const TestFolder folder;
  const std::string path = folder.File("log");
  Log log = Opened(path);
  log.Step({.epoch = 1, .step = 1, .axis = "tokens", .per_second = 5});
  log.Epoch(
      {.epoch = 1,
       .metrics = {{"bits", false, 2.5, 3.5}, {"right \"by\" letter", true}},
       .axis = "tokens",
       .per_second = 6});
  TrainSummary summary;
  summary.axis = "tokens";
  summary.metrics = {{"bits", false, 3.25, 3.5}};
  log.Summary(summary);
  const std::vector<std::string> lines = LinesOf(path);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], R"({"event":"step","step":1,"epoch":1,"loss":0,)"
                      R"("learning_rate":0,"tokens_per_second":5})");
  EXPECT_EQ(lines[1],
            R"({"event":"epoch","epoch":1,"train_loss":0,"train_bits":2.5,)"
            R"("train_right \"by\" letter":0,"test_loss":null,"test_bits":3.5,)"
            R"("test_right \"by\" letter":null,"tokens_per_second":6,)"
            R"("seconds":0})");
  EXPECT_NE(lines[2].find(R"("tokens_per_second":null,"best_test_bits":3.25,)"
                          R"("test_bits":3.5,"final_train_loss":null,)"),
            std::string::npos)
      << lines[2];
}

TEST(Log, NumbersKeepEveryBitOfAFloatAndWhatIsNoNumberIsNull) {
  const TestFolder folder;
  const std::string path = folder.File("log");
  Log log = Opened(path);
  const float third = 1.0f / 3;
  log.Step({.loss = third, .learning_rate = 1e-30});
  log.Step({.loss = std::nan(""), .learning_rate = INFINITY});
  const std::vector<std::string> lines = LinesOf(path);
  ASSERT_EQ(lines.size(), 2u);
  const std::string key = "\"loss\":";
  const size_t at = lines[0].find(key);
  ASSERT_NE(at, std::string::npos) << lines[0];
  EXPECT_EQ(std::strtof(lines[0].c_str() + at + key.size(), nullptr), third);
  EXPECT_NE(lines[0].find("\"learning_rate\":1e-30,"), std::string::npos)
      << lines[0];
  EXPECT_NE(lines[1].find("\"loss\":null,\"learning_rate\":null,"),
            std::string::npos)
      << lines[1];
}

TEST(Log, EmptiesOrAppendsButOnlyToALog) {
  const TestFolder folder;
  const std::string path = folder.File("log");
  Opened(path).Resume(1);
  Opened(path, /*append=*/true).Resume(2);
  ASSERT_EQ(LinesOf(path).size(), 2u);
  Opened(path).Resume(3);
  EXPECT_EQ(ReadTestFile(path), "{\"event\":\"resume\",\"step\":3}\n");
  WriteTestFile(path, "my diary\n");
  for (const bool append : {false, true}) {
    const auto log = Log::Open(path, append);
    ASSERT_FALSE(log.ok());
    EXPECT_NE(log.status().message().find(path), std::string::npos);
    EXPECT_EQ(ReadTestFile(path), "my diary\n");
  }
}

TEST(Log, BeginsANewLineBehindOneThatWasCutShort) {
  const TestFolder folder;
  const std::string path = folder.File("log");
  WriteTestFile(path, "{\"event\":\"step\",\"st");
  Opened(path, /*append=*/true).Resume(4);
  EXPECT_EQ(ReadTestFile(path),
            "{\"event\":\"step\",\"st\n{\"event\":\"resume\",\"step\":4}\n");
}

// A second run empties the log of one that still writes.
TEST(Log, TwoRunsWithOneLogTearNoLine) {
  const TestFolder folder;
  const std::string path = folder.File("log");
  Log first = Opened(path);
  first.Resume(1);
  first.Resume(2);
  Log second = Opened(path);
  second.Resume(3);
  first.Resume(4);
  EXPECT_EQ(LinesOf(path),
            (std::vector<std::string>{R"({"event":"resume","step":3})",
                                      R"({"event":"resume","step":4})"}));
}

TEST(Log, WithoutAPathItDropsEverything) {
  Log log = Opened("");
  log.Resume(1);
  EXPECT_TRUE(log.status().ok());
}

TEST(Log, AWriteThatFailsIsRememberedAndEndsIt) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  Log log = Opened("/dev/full");
  log.Resume(1);
  ASSERT_FALSE(log.status().ok());
  const std::string message = log.status().message();
  EXPECT_NE(message.find("/dev/full"), std::string::npos) << message;
  log.Resume(2);
  EXPECT_EQ(log.status().message(), message);
}

TEST(Log, AFolderThatIsNotThereIsAnError) {
  const TestFolder folder;
  EXPECT_FALSE(Log::Open(folder.File("none/log"), false).ok());
  EXPECT_FALSE(Log::Open(folder.path(), false).ok());
}

}  // namespace
}  // namespace thimble::train
