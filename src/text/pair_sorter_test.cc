// SPDX-License-Identifier: Apache-2.0
#include "text/pair_sorter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "base/test_folder.h"

namespace thimble::text {
namespace {

struct Given {
  std::vector<uint32_t> source, target;
  uint32_t line;
  friend auto operator<=>(const Given&, const Given&) = default;
};

std::vector<Given> ManyPairs(size_t count, size_t longest) {
  std::mt19937 random(1);
  std::vector<Given> pairs;
  for (uint32_t line = 0; line < count; ++line) {
    Given pair{{}, {}, line};
    for (auto* side : {&pair.source, &pair.target}) {
      side->resize(1 + random() % longest);
      for (uint32_t& token : *side) token = static_cast<uint32_t>(random());
    }
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

std::vector<Given> Sorted(const std::vector<Given>& pairs, uint64_t seed,
                          size_t bytes) {
  const TestFolder folder;
  std::vector<Given> sorted;
  {
    PairSorter sorter(folder.File("sort"), seed, bytes);
    for (const Given& pair : pairs) {
      EXPECT_TRUE(sorter.Add(pair.line, pair.source, pair.target).ok());
    }
    EXPECT_TRUE(sorter.Finish().ok());
    PairSorter::Pair pair;
    while (*sorter.Next(&pair)) {
      sorted.push_back({{pair.source.begin(), pair.source.end()},
                        {pair.target.begin(), pair.target.end()},
                        pair.line});
    }
    EXPECT_FALSE(*sorter.Next(&pair));
  }
  EXPECT_EQ(folder.CountFiles(), 0);
  return sorted;
}

TEST(PairSorter, SortsByLengthAndShufflesWhatIsEqual) {
  const std::vector<Given> pairs = ManyPairs(3000, 4);
  std::vector<Given> sorted = Sorted(pairs, 1, 1 << 30);
  EXPECT_TRUE(std::ranges::is_sorted(sorted, {}, [](const Given& pair) {
    return std::pair(pair.source.size(), pair.target.size());
  }));
  const auto lines = [](const std::vector<Given>& some) {
    std::vector<uint32_t> numbers;
    for (const Given& pair : some) numbers.push_back(pair.line);
    return numbers;
  };
  // Of one length, neither in the text's order nor in that of another seed.
  const auto first = lines({sorted.begin(), sorted.begin() + 100});
  EXPECT_FALSE(std::ranges::is_sorted(first));
  EXPECT_NE(lines(Sorted(pairs, 2, 1 << 30)), lines(sorted));
  std::ranges::sort(sorted, {}, &Given::line);
  EXPECT_EQ(sorted, pairs);
}

TEST(PairSorter, LittleMemoryChangesNothing) {
  const std::vector<Given> pairs = ManyPairs(2000, 300);
  const std::vector<Given> whole = Sorted(pairs, 7, 1 << 30);
  for (const size_t bytes : {1u << 20, 20'000u, 1u}) {
    EXPECT_EQ(Sorted(pairs, 7, bytes), whole) << bytes;
  }
}

TEST(PairSorter, TheLongestSentencesFit) {
  const std::vector<Given> pairs = ManyPairs(5, 65'535);
  EXPECT_EQ(Sorted(pairs, 1, 1).size(), 5u);
  EXPECT_TRUE(Sorted({}, 1, 1).empty());
}

TEST(PairSorter, AFileThatCannotBeWrittenIsAnError) {
  PairSorter sorter("/nowhere/sort", 1, 1);
  const std::vector<uint32_t> one = {1};
  const Status added = sorter.Add(0, one, one);
  ASSERT_FALSE(added.ok());
  EXPECT_NE(added.message().find("cannot write /nowhere/sort"),
            std::string::npos)
      << added.message();
}

}  // namespace
}  // namespace thimble::text
