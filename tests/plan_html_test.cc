// SPDX-License-Identifier: Apache-2.0
//
// The page of a plan, read back: what it draws is what the plan says. How it
// behaves in a browser is tested by tests/cli/plan_html_browser.py.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "base/test_folder.h"
#include "html_reader.h"
#include "thimble/model.h"
#include "thimble/network.h"
#include "thimble/plan.h"
#include "thimble/report.h"

namespace thimble {
namespace {

using Json = nlohmann::json;
using Elements = std::vector<HtmlElement>;

constexpr const char* kHostile = "a<b>&\"c'</script><!--\\\n\tö";

Plan PlanOf(const std::string& name, const std::string& strategy = "none") {
  auto model = BuildModel(
      name, {.batch = 8, .images = PresetOf(name).images, .classes = 10});
  EXPECT_TRUE(model.ok());
  auto plan = MakePlan(*model, {.threads = 2, .recompute = strategy});
  EXPECT_TRUE(plan.ok());
  return *std::move(plan);
}

Plan PlanWithHostileNames() {
  const std::string name = kHostile;
  Network net(name, 4);
  ValueId x = net.Images({.channels = 1, .height = 8, .width = 8});
  x = net.Relu(net.Conv2d(name + "1", x, {.channels = 3}));
  auto model = net.Finish(net.Linear(name + "2", net.Flatten(x), 2));
  EXPECT_TRUE(model.ok());
  auto plan = MakePlan(*model, {});
  EXPECT_TRUE(plan.ok());
  return *std::move(plan);
}

// As `plan`, in an arena `factor` times as large.
Plan Enlarged(const Plan& plan, size_t factor) {
  PlanParts parts = plan.parts();
  for (Buffer& b : parts.buffers) {
    b.offset *= factor;
    b.bytes *= factor;
  }
  for (size_t& bytes : parts.peak_bytes) bytes *= factor;
  parts.arena_bytes *= factor;
  parts.lower_bound *= factor;
  return Plan(std::move(parts));
}

std::string PageOf(const Plan& plan,
                   std::optional<uint64_t> budget = std::nullopt) {
  const TestFolder folder;
  const std::string path = folder.File("plan.html");
  const Status written = WritePlanHtml(plan, budget, path);
  EXPECT_TRUE(written.ok()) << written.message();
  EXPECT_EQ(folder.CountFiles(), 1);
  return ReadTestFile(path);
}

const HtmlElement& ById(const Elements& page, const std::string& id) {
  const auto found =
      std::find_if(page.begin(), page.end(),
                   [&](const HtmlElement& e) { return e.Get("id") == id; });
  if (found != page.end()) return *found;
  ADD_FAILURE() << "no element '" << id << "'";
  static const HtmlElement kNone;
  return kNone;
}

Json DataOf(const Elements& page) {
  return Json::parse(ById(page, "plan").text, nullptr, false);
}

// All of a buffer that can be compared and sorted.
using Row =
    std::tuple<std::string, std::string, uint32_t, uint32_t, double, double>;

// A name as the page may hold it: control characters have become spaces.
std::string Shown(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  return name;
}

std::vector<Row> RowsOf(const Plan& plan) {
  std::vector<Row> rows;
  for (const Buffer& b : plan.buffers()) {
    rows.emplace_back(Shown(b.name), RoleName(b.role), b.live.begin, b.live.end,
                      static_cast<double>(b.offset),
                      static_cast<double>(b.bytes));
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

std::vector<Row> RowsOf(const Elements& page) {
  const double unit = DataOf(page)["unit"].get<double>();
  std::vector<Row> rows;
  for (const HtmlElement& e : page) {
    if (e.tag != "rect") continue;
    const auto begin = static_cast<uint32_t>(std::stoul(e.Get("x")));
    const auto life = static_cast<uint32_t>(std::stoul(e.Get("width")));
    rows.emplace_back(e.text, page[e.parent].Get("data-role"), begin,
                      begin + life, std::stod(e.Get("y")) * unit,
                      std::stod(e.Get("height")) * unit);
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST(PlanHtml, DrawsEveryBufferOnceWhereThePlanPutsIt) {
  for (const char* name : {"mlp", "cnn", "wrn-16-1"}) {
    const Plan plan = PlanOf(name);
    EXPECT_EQ(RowsOf(HtmlReader::Read(PageOf(plan))), RowsOf(plan)) << name;
  }
}

TEST(PlanHtml, DrawsNothingOutsideOfThePicture) {
  const Plan plan = PlanOf("cnn");
  const Elements page = HtmlReader::Read(PageOf(plan));
  std::istringstream box(ById(page, "picture").Get("viewBox"));
  double left, top, width, height;
  ASSERT_TRUE(box >> left >> top >> width >> height);
  EXPECT_EQ(left, 0.0);
  EXPECT_EQ(top, 0.0);
  EXPECT_EQ(width, static_cast<double>(plan.schedule().size()));
  EXPECT_EQ(height * DataOf(page)["unit"].get<double>(),
            static_cast<double>(plan.arena_bytes()));
  int drawn = 0;
  for (const HtmlElement& e : page) {
    if (e.tag != "rect") continue;
    ++drawn;
    EXPECT_GE(std::stod(e.Get("x")), 0.0);
    EXPECT_GE(std::stod(e.Get("y")), 0.0);
    EXPECT_GT(std::stod(e.Get("width")), 0.0);
    EXPECT_LE(std::stod(e.Get("x")) + std::stod(e.Get("width")), width);
    EXPECT_LE(std::stod(e.Get("y")) + std::stod(e.Get("height")), height);
  }
  EXPECT_GT(drawn, 0);
}

// The curve as heights over time: "M0 0H<t>V<units>…H<ops>V0Z".
std::vector<double> LiveOf(const Elements& page, size_t ops) {
  std::istringstream path(ById(page, "live").Get("d"));
  const double unit = DataOf(page)["unit"].get<double>();
  std::vector<double> live(ops, 0.0);
  std::string start;
  std::getline(path, start, 'H');
  EXPECT_EQ(start, "M0 0");
  double height = 0.0;
  size_t from = 0, to = 0;
  char command;
  while (path >> to >> command >> start) {
    EXPECT_EQ(command, 'V');
    const size_t next = start.find_first_of("HZ");
    for (; from < to; ++from) live.at(from) = height * unit;
    height = std::stod(start.substr(0, next));
    for (size_t i = start.size(); i-- > next + 1;) path.putback(start[i]);
  }
  EXPECT_EQ(from, ops);
  EXPECT_EQ(height, 0.0);
  return live;
}

TEST(PlanHtml, TheCurvesPeakIsTheLowerBound) {
  for (const char* name : {"cnn", "wrn-16-1"}) {
    const Plan plan = PlanOf(name);
    const Elements page = HtmlReader::Read(PageOf(plan));
    const std::vector<double> live = LiveOf(page, plan.schedule().size());
    const auto most = std::max_element(live.begin(), live.end());
    ASSERT_NE(most, live.end());
    EXPECT_EQ(*most, static_cast<double>(plan.lower_bound()));
    EXPECT_EQ(most - live.begin(), plan.peak_time());
    EXPECT_EQ(DataOf(page)["peak"], plan.peak_time());
    for (const HtmlElement& e : page) {
      if (e.Get("class") != "peak") continue;
      EXPECT_EQ(std::stod(e.Get("x1")), plan.peak_time() + 0.5);
    }
    EXPECT_NE(ById(page, "peak-label").text.find(plan.peak_op().name),
              std::string::npos);
  }
}

TEST(PlanHtml, TheTableByRoleAddsUpToThePeak) {
  const Plan plan = PlanOf("cnn");
  const Elements page = HtmlReader::Read(PageOf(plan));
  const HtmlElement* table = &ById(page, "roles");
  std::vector<std::string> expected, found;
  for (size_t i = 0; i < kRoles; ++i) {
    const Role role = static_cast<Role>(i);
    expected.push_back(RoleName(role) + std::to_string(plan.peak_bytes(role)));
  }
  expected.push_back("all" + std::to_string(plan.lower_bound()));
  for (size_t i = 0; i + 2 < page.size(); ++i) {
    if (page[i].tag != "tr" || &page[page[i].parent] != table) continue;
    std::string row;
    int cells = 0;
    for (size_t j = i + 1; j < page.size() && cells < 2; ++j) {
      if (page[j].parent != static_cast<int>(i)) continue;
      row += page[j].text;
      ++cells;
    }
    std::erase(row, ',');
    found.push_back(row);
  }
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0], "rolebytes");
  found.erase(found.begin());
  EXPECT_EQ(found, expected);
}

// Each weight, and what they have together, which is in the pool.
TEST(PlanHtml, TellsWhatEachSparseWeightKeeps) {
  auto model = BuildModel("wrn-10-1", {.batch = 8});
  ASSERT_TRUE(model.ok());
  const auto plan = MakePlan(
      *model,
      {.precision = Precision::All(DType::kF16),
       .sparse = {.nonzero = 0.2, .block = {.outputs = 2, .inputs = 2}}});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  const SparsePool& pool = *plan->sparse();
  const Elements page = HtmlReader::Read(PageOf(*plan));
  const HtmlElement* table = &ById(page, "sparse");
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < page.size(); ++i) {
    if (page[i].tag != "tr" || &page[page[i].parent] != table) continue;
    rows.emplace_back();
    for (const HtmlElement& cell : page) {
      if (cell.parent != static_cast<int>(i)) continue;
      rows.back().push_back(cell.text);
      std::erase(rows.back().back(), ',');
    }
  }
  ASSERT_EQ(rows.size(), pool.members.size() + 2);
  for (size_t m = 0; m < pool.members.size(); ++m) {
    const Value& weight =
        plan->graph().value(plan->parameters()[pool.members[m]].parameter);
    const std::vector<std::string>& row = rows[m + 1];
    ASSERT_EQ(row.size(), 5u);
    EXPECT_EQ(row[0], weight.name);
    EXPECT_EQ(row[1], std::to_string(4 * weight.spec.storage.sparsity->kept));
    EXPECT_EQ(row[2], std::to_string(weight.spec.shape.elements()));
    EXPECT_NE(row[3].find("0.0%"), 1u) << row[3];
    EXPECT_EQ(row[4], std::to_string(weight.spec.bytes()));
  }
  const std::vector<std::string>& all = rows.back();
  EXPECT_EQ(all[0], "all");
  EXPECT_EQ(all[1], std::to_string(4 * pool.layout.kept()));
  EXPECT_EQ(all[4], std::to_string(8 * pool.layout.kept()));
  EXPECT_EQ(all[3].find("20.0%"), 1u) << all[3];
  EXPECT_EQ(PageOf(PlanOf("cnn")).find("id=\"sparse\""), std::string::npos);
}

TEST(PlanHtml, NamesTheOpsOfEveryTime) {
  const Plan plan = PlanOf("cnn");
  const Json data = DataOf(HtmlReader::Read(PageOf(plan)));
  ASSERT_EQ(data["ops"].size(), plan.schedule().size());
  for (size_t t = 0; t < plan.schedule().size(); ++t) {
    const ScheduledOp& s = plan.schedule()[t];
    EXPECT_EQ(data["ops"][t], plan.graph().op(s.op).name);
    int holds_it = 0;
    for (const Json& phase : data["phases"]) {
      if (phase[1] <= t && t < phase[2]) {
        EXPECT_EQ(phase[0], PhaseName(s.phase));
        ++holds_it;
      }
    }
    EXPECT_EQ(holds_it, 1) << "time " << t;
  }
}

TEST(PlanHtml, MarksTheOpsThatRunAgain) {
  for (const char* strategy : {"none", "residual-2*"}) {
    const Plan plan = PlanOf("wrn-16-1", strategy);
    const Elements page = HtmlReader::Read(PageOf(plan));
    EXPECT_EQ(RowsOf(page), RowsOf(plan));
    std::vector<bool> expected, found(plan.schedule().size(), false);
    for (const ScheduledOp& s : plan.schedule()) {
      expected.push_back(s.recompute);
    }
    std::string stripes;
    const std::string top =
        ById(page, "picture").Get("viewBox").substr(4);  // "ops height"
    const std::string height = top.substr(top.find(' ') + 1);
    const Json data = DataOf(page);
    for (const Json& run : data["again"]) {
      const auto begin = run[0].get<size_t>(), end = run[1].get<size_t>();
      for (size_t t = begin; t < end; ++t) found.at(t) = true;
      stripes += "M" + std::to_string(begin) + " 0H" + std::to_string(end) +
                 "V" + height + "H" + std::to_string(begin) + "Z";
    }
    EXPECT_EQ(found, expected);
    EXPECT_EQ(ById(page, "again").Get("d"), stripes);
    EXPECT_EQ(stripes.empty(), std::string(strategy) == "none");
    EXPECT_NE(ById(page, "figures").text.find(strategy), std::string::npos);
  }
}

TEST(PlanHtml, NamesMayHoldAnything) {
  const Plan plan = PlanWithHostileNames();
  const Elements page = HtmlReader::Read(PageOf(plan));
  EXPECT_EQ(RowsOf(page), RowsOf(plan));
  const Json data = DataOf(page);
  ASSERT_EQ(data["ops"].size(), plan.schedule().size());
  EXPECT_EQ(data["ops"][plan.peak_time()], plan.peak_op().name);
  EXPECT_EQ(ById(page, "plan").text.find('<'), std::string::npos);
  const auto title =
      std::find_if(page.begin(), page.end(),
                   [](const HtmlElement& e) { return e.tag == "title"; });
  ASSERT_NE(title, page.end());
  EXPECT_EQ(title->text, "Plan of " + Shown(kHostile));
}

TEST(PlanHtml, LoadsNothingFromElsewhere) {
  const std::string page = PageOf(PlanOf("cnn"));
  for (const char* loads : {"http:", "https:", "//www", "src=", "href", "url(",
                            "@import", "fetch(", "XMLHttp", "import("}) {
    EXPECT_EQ(page.find(loads), std::string::npos) << loads;
  }
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
}

// Browsers lay out in 32-bit fixed point; bytes must still be exact.
TEST(PlanHtml, ArenasOfManyGigabytesKeepTheirExactBytes) {
  const Plan plan = Enlarged(PlanOf("cnn"), 10'007);
  ASSERT_GT(plan.arena_bytes(), size_t{10'000'000'000});
  const Elements page = HtmlReader::Read(PageOf(plan));
  EXPECT_EQ(RowsOf(page), RowsOf(plan));
  std::istringstream box(ById(page, "picture").Get("viewBox"));
  double left, top, width, height;
  ASSERT_TRUE(box >> left >> top >> width >> height);
  EXPECT_LE(height, 1 << 24);
}

TEST(PlanHtml, TellsWhetherTheBudgetIsKept) {
  const Plan plan = PlanOf("mlp");
  const auto figures = [&](std::optional<uint64_t> budget) {
    return ById(HtmlReader::Read(PageOf(plan, budget)), "figures").text;
  };
  EXPECT_EQ(figures(std::nullopt).find("budget"), std::string::npos);
  EXPECT_NE(figures(plan.arena_bytes()).find("(kept)"), std::string::npos);
  EXPECT_NE(figures(plan.arena_bytes() - 1).find("(exceeded)"),
            std::string::npos);
}

TEST(PlanHtml, SaysOfTheWorkWhatTheTableSays) {
  for (const char* name : {"mlp", "wrn-10-1"}) {
    const Plan plan = PlanOf(name);
    const std::string table = PlanTable(plan);
    const size_t end = table.find(", forward and backward; ");
    ASSERT_NE(end, std::string::npos) << table;
    const size_t begin = table.rfind("  ", end) + 2;
    const std::string work = table.substr(begin, end - begin);
    EXPECT_NE(work.find("FLOP per step, "), std::string::npos) << work;
    const std::string figures =
        ById(HtmlReader::Read(PageOf(plan)), "figures").text;
    EXPECT_NE(figures.find(work), std::string::npos) << work << figures;
  }
}

TEST(PlanHtml, RefusesWhatItWouldDestroy) {
  const Plan plan = PlanOf("mlp");
  const TestFolder folder;
  const std::string real = folder.File("real"), link = folder.File("link");
  WriteTestFile(real, "mine");
  ASSERT_EQ(symlink(real.c_str(), link.c_str()), 0);
  for (const std::string& path : {link, folder.path()}) {
    const Status written = WritePlanHtml(plan, std::nullopt, path);
    ASSERT_FALSE(written.ok()) << path;
    EXPECT_NE(written.message().find(path), std::string::npos);
  }
  EXPECT_FALSE(WritePlanHtml(plan, {}, folder.File("no/plan.html")).ok());
  EXPECT_EQ(ReadTestFile(link), "mine");
  EXPECT_EQ(folder.CountFiles(), 1);
  // An ordinary file is replaced.
  EXPECT_TRUE(WritePlanHtml(plan, std::nullopt, real).ok());
  EXPECT_EQ(ReadTestFile(real).rfind("<!DOCTYPE html>", 0), 0u);
}

}  // namespace
}  // namespace thimble
