// SPDX-License-Identifier: Apache-2.0
//
// A plan as one self-contained page: head, figures, tables and what its script
// reads. plan_picture.cc has the pictures.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/html_page.h"
#include "report/json_object.h"
#include "report/markup.h"
#include "report/output_file.h"
#include "report/page_writer.h"
#include "report/plan_picture.h"
#include "report/plan_report.h"
#include "thimble/report.h"
#include "thimble/size.h"

namespace thimble {
namespace {

using report::Canvas;
using report::PageWriter;
using report::Percent;

constexpr size_t kLargestAtPeak = 20;  // rows of the table of buffers

double PercentAtPeak(const Plan& plan, size_t bytes) {
  return Percent(static_cast<double>(bytes),
                 static_cast<double>(plan.lower_bound()));
}

// "1,456,858".
std::string Grouped(uint64_t number) {
  std::string text = fmt::format("{}", number);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::string WithExactBytes(size_t bytes) {
  return fmt::format("{} ({} bytes)", FormatBytesUp(bytes), Grouped(bytes));
}

void AddHead(PageWriter& page, const Plan& plan) {
  // The policy holds the page to its promise: it loads nothing.
  page.Add(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
      "<meta charset=\"utf-8\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src "
      "'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width\"/>\n"
      "<title>Plan of {}</title>\n<style>{}</style>\n</head>\n<body>\n"
      "<h1>Plan of {}</h1>\n",
      report::Escaped(plan.model()), report::kPageStyle,
      report::Escaped(plan.model()));
}

void AddFigure(PageWriter& page, const char* term, std::string_view text) {
  page.Add("<div><dt>{}</dt><dd>{}</dd></div>\n", term, report::Escaped(text));
}

// The same figures as PlanJson.
void AddFigures(PageWriter& page, const Plan& plan,
                std::optional<uint64_t> budget) {
  const double gap = Percent(static_cast<double>(plan.arena_bytes()),
                             static_cast<double>(plan.lower_bound())) -
                     100.0;
  page.Add("<dl id=\"figures\">\n");
  AddFigure(page, "arena (all that is allocated)",
            WithExactBytes(plan.arena_bytes()));
  AddFigure(page, "lower bound (most live)",
            WithExactBytes(plan.lower_bound()));
  AddFigure(page, "arena over the bound", fmt::format("{:.2f}%", gap));
  AddFigure(page, "peak at op", plan.peak_op().name);
  if (budget.has_value()) {
    AddFigure(page, "budget",
              fmt::format("{} ({})", FormatBytes(*budget),
                          report::Fits(plan, budget) ? "kept" : "exceeded"));
  }
  AddFigure(page, "parameters",
            Grouped(static_cast<uint64_t>(plan.ParameterCount())));
  AddFigure(page, "batch, microbatch",
            fmt::format("{}, {}", plan.batch(), plan.microbatch()));
  AddFigure(page, "precision", plan.options().precision.ToString());
  AddFigure(page, "checkpoint", plan.options().recompute);
  AddFigure(page, "threads", std::to_string(plan.options().threads));
  AddFigure(page, "forward and backward", report::FlopsText(plan));
  AddFigure(page, "FLOPs over those without recomputation",
            fmt::format("{:.3f}", report::FlopsRatio(plan)));
  AddFigure(
      page, "ops, buffers",
      fmt::format("{}, {}", plan.schedule().size(), plan.buffers().size()));
  page.Add("</dl>\n");
}

// Also the legend, and what switches a role's buffers off in the picture.
void AddRoles(PageWriter& page, const Plan& plan) {
  std::array<size_t, kRoles> buffers{};
  for (const Buffer& b : plan.buffers()) ++buffers[static_cast<size_t>(b.role)];
  page.Add(
      "<div>\n<h2>By role, at the peak</h2>\n<table id=\"roles\">\n<tr>"
      "<th>role</th><th class=\"number\">bytes</th>"
      "<th class=\"number\">share</th>"
      "<th class=\"number\">buffers in all</th></tr>\n");
  for (size_t i = 0; i < kRoles; ++i) {
    const Role role = static_cast<Role>(i);
    const size_t bytes = plan.peak_bytes(role);
    page.Add(
        "<tr class=\"{0}\"><td><label><input type=\"checkbox\" "
        "checked=\"checked\" data-role=\"{0}\"/><span class=\"swatch\"></span>"
        "{0}</label></td><td class=\"number\">{1}</td>"
        "<td class=\"number\">{2:.1f}%</td><td class=\"number\">{3}</td>"
        "</tr>\n",
        RoleName(role), Grouped(bytes), PercentAtPeak(plan, bytes), buffers[i]);
  }
  page.Add(
      "<tr><th>all</th><td class=\"number\">{}</td><td class=\"number\">100.0%"
      "</td><td class=\"number\">{}</td></tr>\n</table>\n</div>\n",
      Grouped(plan.lower_bound()), plan.buffers().size());
}

void AddLargest(PageWriter& page, const Plan& plan) {
  const std::vector<const Buffer*> live = report::LiveAtPeak(plan);
  const size_t rows = std::min(kLargestAtPeak, live.size());
  page.Add(
      "<div>\n<h2>Largest at the peak ({} of {})</h2>\n<table id=\"largest\">\n"
      "<tr><th>buffer</th><th>role</th><th class=\"number\">bytes</th></tr>\n",
      rows, live.size());
  for (const Buffer* b : std::span(live).first(rows)) {
    page.Add(
        "<tr class=\"{0}\"><td>{1}</td><td><span class=\"swatch\"></span>{0}"
        "</td><td class=\"number\">{2}</td></tr>\n",
        RoleName(b->role), report::Escaped(b->name), Grouped(b->bytes));
  }
  page.Add("</table>\n</div>\n");
}

// What each sparse weight keeps when training begins. Afterwards it changes,
// but for all together.
void AddSparseWeights(PageWriter& page, const Plan& plan) {
  if (!plan.sparse().has_value()) return;
  const SparsePool& pool = *plan.sparse();
  const WeightBlock& block = pool.layout.block();
  page.Add(
      "<div>\n<h2>Sparse weights, when training begins</h2>\n"
      "<p>{} of {} weights, in blocks of {}x{}; their index, {}, takes {} "
      "bytes. Gradients and momentum keep as many.</p>\n"
      "<table id=\"sparse\">\n<tr><th>weight</th><th class=\"number\">nonzero"
      "</th><th class=\"number\">of</th><th>share</th>"
      "<th class=\"number\">bytes</th></tr>\n",
      pool.members.size(), plan.parameters().size(), block.outputs,
      block.inputs, IndexCodecName(pool.layout.codec()),
      Grouped(pool.layout.index_bytes()));
  uint64_t kept = 0, all = 0, bytes = 0;
  const auto add = [&](std::string_view tag, std::string_view name, uint64_t n,
                       uint64_t of, uint64_t size) {
    const double share = static_cast<double>(n) / static_cast<double>(of);
    page.Add(
        "<tr><{0}>{1}</{0}><td class=\"number\">{2}</td>"
        "<td class=\"number\">{3}</td><td><meter value=\"{4:.4f}\"></meter> "
        "{5:.1f}%</td><td class=\"number\">{6}</td></tr>\n",
        tag, report::Escaped(name), Grouped(n), Grouped(of), share,
        100.0 * share, Grouped(size));
  };
  for (const uint32_t m : pool.members) {
    const Value& weight = plan.graph().value(plan.parameters()[m].parameter);
    const auto values = static_cast<uint64_t>(block.values());
    const uint64_t nonzero =
        values * static_cast<uint64_t>(weight.spec.storage.sparsity->kept);
    const auto elements = static_cast<uint64_t>(weight.spec.shape.elements());
    add("td", weight.name, nonzero, elements, weight.spec.bytes());
    kept += nonzero;
    all += elements;
    bytes += weight.spec.bytes();
  }
  add("th", "all", kept, all, bytes);
  page.Add("</table>\n</div>\n");
}

// What the script needs and the picture does not show.
void AddData(PageWriter& page, const Plan& plan, const Canvas& canvas) {
  page.Add(
      "<script id=\"plan\" type=\"application/json\">{{\"unit\":{},"
      "\"peak\":{},\"phases\":[",
      canvas.unit, plan.peak_time());
  const char* separator = "";
  for (const report::PhaseSpan& p : report::PhasesOf(plan)) {
    page.Add("{}[\"{}\",{},{}]", separator, PhaseName(p.phase), p.ops.begin,
             p.ops.end);
    separator = ",";
  }
  page.Add("],\"again\":[");
  separator = "";
  for (const Interval& run : report::RecomputationOf(plan)) {
    page.Add("{}[{},{}]", separator, run.begin, run.end);
    separator = ",";
  }
  page.Add("],\"ops\":[");
  separator = "\n";
  for (const ScheduledOp& s : plan.schedule()) {
    page.Add("{}{}", separator,
             report::ScriptString(plan.graph().op(s.op).name));
    separator = ",\n";
  }
  page.Add("]}}</script>\n");
}

}  // namespace

Status WritePlanHtml(const Plan& plan, std::optional<uint64_t> budget,
                     const std::string& path) {
  auto file = report::CreateOutputFile(path);
  if (!file.ok()) return file.status();
  PageWriter page(*std::move(file));
  const Canvas canvas = report::CanvasOf(plan);
  AddHead(page, plan);
  AddFigures(page, plan, budget);
  report::AddChart(page, plan, canvas);
  page.Add("<div class=\"tables\">\n");
  AddRoles(page, plan);
  AddLargest(page, plan);
  AddSparseWeights(page, plan);
  page.Add("</div>\n");
  AddData(page, plan, canvas);
  page.Add("<script>{}</script>\n</body>\n</html>\n", report::kPageScript);
  return page.Finish();
}

}  // namespace thimble
